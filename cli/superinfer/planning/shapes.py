"""The shapes a contract could use, from measured profiles and the nodes there are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.geometry import GpuProduct, MigProfile, product_named
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
        sources = [name for name in profiles if name in shapes]
        used.update(sources)
        if not sources:
            continue
        for name, shape in shapes.items():
            if shape.memory_mib >= (memory_mib or 0):
                options.append(_option(index, product, shapes, sources, profiles, name))
        options += [
            group
            for count in GROUPS
            if shapes["GPU"].memory_mib * count >= (memory_mib or 0)
            and (group := _group(index, product, shapes, sources, profiles, count)).domains
        ]
    unknown = sorted(set(profiles) - used)
    if unknown:
        raise UnknownShape(f"no node has a GPU with shape {', '.join(unknown)}")
    return options


def _option(
    index: PlacementIndex,
    product: GpuProduct,
    shapes: Mapping[str, MigProfile],
    sources: Sequence[str],
    profiles: Mapping[str, Profile],
    name: str,
) -> ShapeOption:
    demand = _demand(product, shapes[name])
    domains = index.nodes_with_room(demand)
    if name in profiles:
        return replace(
            _measured(shapes[name], profiles[name], demand), name=f"{product.label} {name}", domains=domains
        )
    source = _nearest(shapes, sources, shapes[name])
    base = _measured(shapes[source], profiles[source], demand)
    made = estimated(base, shapes[source], shapes[name], domains=domains)
    return replace(made, name=f"{product.label} {name}")


def _group(
    index: PlacementIndex,
    product: GpuProduct,
    shapes: Mapping[str, MigProfile],
    sources: Sequence[str],
    profiles: Mapping[str, Profile],
    count: int,
) -> ShapeOption:
    demand = replace(_demand(product, shapes["GPU"]), count=count, interconnect=Interconnect.NVLINK_REQUIRED)
    source = _nearest(shapes, sources, shapes["GPU"])
    base = _measured(shapes[source], profiles[source], demand)
    domains = index.nodes_with_room(demand)
    made = estimated(base, shapes[source], shapes["GPU"], domains=domains, count=count)
    return replace(made, name=f"{product.label} {count}xGPU")


def _demand(product: GpuProduct, shape: MigProfile) -> ChipletDemand:
    if shape.name == "GPU":
        return ChipletDemand(ChipletShape.GPU, product=product.label)
    return ChipletDemand(ChipletShape.MIG, shape.name, product=product.label)


def _nearest(shapes: Mapping[str, MigProfile], sources: Sequence[str], shape: MigProfile) -> str:
    """The profiled shape nearest in size: estimates reach least far from there."""
    return min(sources, key=lambda name: (abs(shapes[name].memory_slices - shape.memory_slices), name))


def _measured(shape: MigProfile, profile: Profile, demand: ChipletDemand) -> ShapeOption:
    return ShapeOption(
        shape.name,
        demand,
        shape.memory_slices / 8,
        profile.steps,
        profile.factor(QUANTILE),
        profile.max_step_tokens,
        profile.max_num_seqs,
        measured=True,
        domains=0,
    )
