"""The shapes a contract could use, from measured profiles and the nodes there are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.geometry import MEMORY_SLICES, GpuProduct, MigProfile, product_named
from superinfer_core.placement.index import PlacementIndex
from superinfer_core.placement.shapes import ShapeOption, estimated, whole_gpu
from superinfer_core.prediction.profile import Profile

QUANTILE = 0.99
GROUPS = (2, 4, 8)


class UnknownShape(Exception):
    """A profile is given for a shape no product has."""


def products_of(index: PlacementIndex) -> list[GpuProduct]:
    """Known products on the nodes, by name."""
    names = {kind.product for node in index.fleet for kind in node.kind.gpus}
    found = [product for name in names if (product := product_named(name)) is not None]
    return sorted(found, key=lambda product: product.name)


def shape_options(
    index: PlacementIndex, profiles: Mapping[str, Profile], memory_mib: int | None
) -> list[ShapeOption]:
    """Every shape of every product there is: measured where a profile is given, else estimated from one.

    Args:
        index: the nodes, as far as they are taken.
        profiles: by shape: a MIG profile's name, or GPU.
        memory_mib: what weights and KV cache need; smaller shapes are left out.

    Raises:
        UnknownShape: see there.
    """
    options: list[ShapeOption] = []
    used: set[str] = set()
    for product in products_of(index):
        shapes = {profile.name: profile for profile in product.mig_profiles if "+" not in profile.name}
        shapes["GPU"] = whole_gpu(product)
        sources = profiles.keys() & shapes.keys()
        used |= sources
        if not sources:
            continue
        for name, shape in shapes.items():
            if shape.memory_mib >= (memory_mib or 0):
                options.append(_option(index, product, shapes, profiles, name))
        options += [
            group
            for count in GROUPS
            if shapes["GPU"].memory_mib * count >= (memory_mib or 0)
            and (group := _option(index, product, shapes, profiles, "GPU", count)).domains
        ]
    unknown = sorted(set(profiles) - used)
    if unknown:
        raise UnknownShape(f"no node has a GPU with shape {', '.join(unknown)}")
    return options


def _option(
    index: PlacementIndex,
    product: GpuProduct,
    shapes: Mapping[str, MigProfile],
    profiles: Mapping[str, Profile],
    name: str,
    count: int = 1,
) -> ShapeOption:
    """One shape, or `count` linked ones together."""
    demand = _demand(product, shapes[name], count)
    domains = index.nodes_with_room(demand)
    if name in profiles and count == 1:
        made = replace(_measured(shapes[name], profiles[name], demand), domains=domains)
    else:
        source = _nearest(shapes, [known for known in profiles if known in shapes], shapes[name])
        base = _measured(shapes[source], profiles[source], demand)
        made = estimated(base, shapes[source], shapes[name], domains=domains, count=count)
    return replace(made, name=f"{product.label} {made.name}")


def _demand(product: GpuProduct, shape: MigProfile, count: int) -> ChipletDemand:
    if shape.name == "GPU":
        linked = Interconnect.NVLINK_REQUIRED if count > 1 else Interconnect.ANY
        return ChipletDemand(ChipletShape.GPU, count=count, interconnect=linked, product=product.label)
    return ChipletDemand(ChipletShape.MIG, shape.name, product=product.label)


def _nearest(shapes: Mapping[str, MigProfile], sources: Sequence[str], shape: MigProfile) -> str:
    """The profiled shape nearest in size: estimates reach least far from there."""
    return min(sources, key=lambda name: (abs(shapes[name].memory_slices - shape.memory_slices), name))


def _measured(shape: MigProfile, profile: Profile, demand: ChipletDemand) -> ShapeOption:
    return ShapeOption(
        shape.name,
        demand,
        shape.memory_slices / MEMORY_SLICES,
        profile.steps,
        profile.factor(QUANTILE),
        profile.max_step_tokens,
        profile.max_num_seqs,
        measured=True,
        domains=0,
    )
