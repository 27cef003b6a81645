"""The MOCK of NVIDIA's MIG manager: a named configuration becomes the layout of all GPUs of a node.

Promise: pure. Names are those mig-parted ships (`all-disabled`, `all-<profile>`, `all-balanced`); instances
are laid largest first, so that a layout that exists is found. UUIDs are derived again: other instances,
other UUIDs.
"""

from collections.abc import Sequence
from typing import Final

from superinfer_core.placement.advice import named_layouts
from superinfer_core.placement.geometry import PRODUCTS, GpuProduct, MigProfile, can_lie_together
from superinfer_gpumock.description import Description, DescriptionInvalid, Mig, MigInstance

CONFIG_LABEL: Final = "nvidia.com/mig.config"
STATE_LABEL: Final = "nvidia.com/mig.config.state"

Laid = tuple[tuple[MigProfile, int], ...]


def relayout(description: Description, config: str) -> Description:
    """The node with every GPU in that configuration; raises DescriptionInvalid where it has none such."""
    product = PRODUCTS.get(description.product)
    layouts = {} if product is None else dict(named_layouts(product))
    if product is None or config not in layouts:
        known = ", ".join(sorted(layouts)) or "none"
        raise DescriptionInvalid(f"{CONFIG_LABEL}={config}: {description.product} has {known}")
    profiles = _profiles(product, layouts[config])
    laid = _lay(profiles, ())
    if laid is None:
        raise DescriptionInvalid(f"{CONFIG_LABEL}={config}: does not fit {product.name}")
    instances = tuple(MigInstance(profile=profile.name, start=start) for profile, start in laid)
    mig = Mig(enabled=bool(instances), instances=instances)
    gpus = tuple(gpu.model_copy(update={"mig": mig}) for gpu in description.gpus)
    return description.model_copy(update={"gpus": gpus})


def _profiles(product: GpuProduct, layout: Sequence[tuple[str, int]]) -> list[MigProfile]:
    wanted = [product.profile(name) for name, count in layout for _ in range(count)]
    return sorted((one for one in wanted if one is not None), key=lambda one: -one.memory_slices)


def _lay(left: Sequence[MigProfile], laid: Laid) -> Laid | None:
    if not left:
        return laid
    for start in left[0].starts:
        longer = (*laid, (left[0], start))
        if can_lie_together(longer) and (whole := _lay(left[1:], longer)) is not None:
            return whole
    return None
