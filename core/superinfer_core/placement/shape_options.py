"""The chiplet shapes of the nodes there are, with their speed: measured where profiled, else estimated.

Promise: pure and deterministic. A profile counts as measured only where one product alone could be the one it
was measured on; of several nobody knows which, so all of them are estimates. A product none of whose shapes
has a profile offers none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.geometry import MEMORY_SLICES, GpuProduct, MigProfile
from superinfer_core.placement.shapes import WHOLE_GPU, ShapeOption, estimated, shape_name, whole_gpu
from superinfer_core.prediction.profile import Profile
from superinfer_core.slo import Isolation

QUANTILE = 0.99
GROUPS = (2, 4, 8)
"""GPUs that are put together, beside what has a profile."""

ShapeKey = tuple[str, int]
"""A MIG profile's name or GPU, and how many of them."""


class UnknownShape(Exception):
    """A profile is given for a shape no product has."""


def _any_memory(gpus: int) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class ShapeTerms:
    """What a shape must offer, whatever its speed.

    Attributes:
        domains: how many nodes could hold a chiplet.
        memory_mib: GPU memory it must have on so many GPUs; None is not checked.
        isolation: what must not be shared.
        named: the allocator needs the names of devices (DRA).
    """

    domains: Callable[[ChipletDemand], int]
    memory_mib: Callable[[int], int | None] = _any_memory
    isolation: Isolation = Isolation.SHARED
    named: bool = False


def shape_of(chiplet: ChipletDemand) -> ShapeKey:
    """The key of a chiplet's shape."""
    return (chiplet.profile or WHOLE_GPU, chiplet.count)


def shape_options(
    products: Sequence[GpuProduct], profiles: Mapping[ShapeKey, Profile], terms: ShapeTerms
) -> list[ShapeOption]:
    """Every shape of every product that has enough memory.

    Args:
        products: of the nodes there are.
        profiles: by shape.
        terms: what a shape must offer.

    Raises:
        UnknownShape: see there.
    """
    tables = {product.name: _shapes(product) for product in products}
    known = {name for shapes in tables.values() for name in shapes}
    unknown = sorted(shape_name(*key) for key in profiles if key[0] not in known)
    if unknown:
        raise UnknownShape(f"no node has a GPU with shape {', '.join(unknown)}")
    owners = {key: sum(key[0] in shapes for shapes in tables.values()) for key in profiles}
    options: list[ShapeOption] = []
    for product in products:
        shapes = tables[product.name]
        sources = {key: profile for key, profile in profiles.items() if key[0] in shapes}
        if not sources:
            continue
        for key in _keys(shapes, sources):
            option = _option(product, shapes, sources, key, terms)
            if option is not None:
                sure = option.measured and owners[key] == 1
                options.append(replace(option, measured=sure))
    return options


def _shapes(product: GpuProduct) -> dict[str, MigProfile]:
    shapes = {profile.name: profile for profile in product.mig_profiles if "+" not in profile.name}
    return {**shapes, WHOLE_GPU: whole_gpu(product)}


def _keys(shapes: Mapping[str, MigProfile], sources: Iterable[ShapeKey]) -> list[ShapeKey]:
    groups = sorted({*GROUPS, *(count for _, count in sources if count > 1)})
    return [*((name, 1) for name in shapes), *((WHOLE_GPU, count) for count in groups)]


def _option(
    product: GpuProduct,
    shapes: Mapping[str, MigProfile],
    sources: Mapping[ShapeKey, Profile],
    key: ShapeKey,
    terms: ShapeTerms,
) -> ShapeOption | None:
    """One shape; None where it is too small, or a group that nobody asked about and no node has."""
    name, count = key
    need = terms.memory_mib(count)
    if shapes[name].memory_mib * count < (need or 0):
        return None
    demand = replace(
        _demand(product, name, count), memory_mib=need, isolation=terms.isolation, named=terms.named
    )
    domains = terms.domains(demand)
    if count > 1 and not domains and key not in sources:
        return None
    source = key if key in sources else _nearest(shapes, sources, key)
    measured = _measured(shapes, sources[source], source, demand)
    if source == key:
        made = replace(measured, domains=domains)
    else:
        made = estimated(
            measured,
            shapes[source[0]],
            shapes[name],
            domains=domains,
            count=count,
            source_count=source[1],
        )
    return replace(made, name=f"{product.label} {made.name}")


def _demand(product: GpuProduct, name: str, count: int) -> ChipletDemand:
    if name == WHOLE_GPU:
        linked = Interconnect.NVLINK_REQUIRED if count > 1 else Interconnect.ANY
        return ChipletDemand(ChipletShape.GPU, count=count, interconnect=linked, product=product.label)
    return ChipletDemand(ChipletShape.MIG, name, product=product.label)


def _nearest(shapes: Mapping[str, MigProfile], sources: Iterable[ShapeKey], key: ShapeKey) -> ShapeKey:
    """The profiled shape nearest in size: estimates reach least far from there."""
    size = shapes[key[0]].memory_slices * key[1]
    return min(sources, key=lambda one: (abs(shapes[one[0]].memory_slices * one[1] - size), one))


def _measured(
    shapes: Mapping[str, MigProfile], profile: Profile, key: ShapeKey, demand: ChipletDemand
) -> ShapeOption:
    return ShapeOption(
        shape_name(*key),
        demand,
        key[1] * shapes[key[0]].memory_slices / MEMORY_SLICES,
        profile.steps,
        profile.factor(QUANTILE),
        profile.max_step_tokens,
        profile.max_num_seqs,
        measured=True,
        domains=0,
    )
