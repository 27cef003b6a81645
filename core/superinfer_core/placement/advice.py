"""Which MIG layout would make room for executors that have none.

Promise: pure advice; nothing is reconfigured by it. Only GPUs nobody uses are considered. A node that is idle
as a whole gets the name of a configuration as NVIDIA's mig-parted ships them (label nvidia.com/mig.config);
on a node in use, single idle GPUs get the list of instances they should have. Each piece of advice takes
into account what the advice before it already makes room for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.fleet import Fleet, FleetNode
from superinfer_core.placement.geometry import (
    COMPUTE_SLICES,
    MEMORY_SLICES,
    GpuProduct,
    MigProfile,
    product_named,
)
from superinfer_core.placement.hardware import FREE, GpuMode
from superinfer_core.placement.landing import gpus_of
from superinfer_core.placement.outcome import LayoutAdvice, Unplaced
from superinfer_core.placement.search import admits

MAX_ADVICE = 32

Layout = tuple[tuple[str, int], ...]
"""Profiles with their numbers on one GPU; empty: MIG is off."""


@cache
def named_layouts(product: GpuProduct) -> tuple[tuple[str, Layout], ...]:
    """mig-parted's configurations for a product: one profile everywhere, balanced, or MIG off."""
    found: list[tuple[str, Layout]] = [("all-disabled", ())]
    found.extend(
        (f"all-{profile.name.replace('+', '.')}", ((profile.name, _most(profile)),))
        for profile in product.mig_profiles
    )
    by_shape = {(p.memory_slices, p.compute_slices): p for p in product.mig_profiles if "+" not in p.name}
    one, two, three = by_shape.get((1, 1)), by_shape.get((2, 2)), by_shape.get((4, 3))
    if one is not None and two is not None and three is not None:
        found.append(("all-balanced", ((one.name, 2), (two.name, 1), (three.name, 1))))
    return tuple(found)


def _most(profile: MigProfile) -> int:
    return min(profile.max_instances, len(profile.starts), COMPUTE_SLICES // profile.compute_slices)


def advise(fleet: Fleet, pools: Mapping[str, PoolDemand], unplaced: Sequence[Unplaced]) -> list[LayoutAdvice]:
    """Layouts that would make room, the most useful first."""
    missing = {
        one.pool: one.count
        for one in unplaced
        if one.pool in pools and pools[one.pool].chiplet.shape is not ChipletShape.CPU
    }
    found: list[LayoutAdvice] = []
    used: set[str] = set()
    # Nodes of a group are alike: the first of each that has not been advised yet speaks for all.
    groups = [group for group in fleet.groups.values() if FREE in group.states]
    while missing and len(found) < MAX_ADVICE:
        best: tuple[tuple[int, int, str, str], LayoutAdvice, dict[str, int]] | None = None
        for group in groups:
            node = fleet.first_of(group, used)
            if node is None:
                continue
            for advice, helped in _options(node, fleet, pools, missing):
                gain = sum(_size(pools[key]) * count for key, count in helped.items())
                rank = (-gain, 0 if advice.config else 1, node.node.name, advice.config or advice.device)
                if best is None or rank < best[0]:
                    best = (rank, advice, helped)
        if best is None:
            break
        _, advice, helped = best
        found.append(advice)
        used.add(advice.node)
        for key, count in helped.items():
            missing[key] -= count
            if missing[key] <= 0:
                del missing[key]
    return found


def _size(pool: PoolDemand) -> int:
    if pool.chiplet.shape is ChipletShape.GPU:
        return MEMORY_SLICES * pool.chiplet.count
    return int((pool.chiplet.profile or "1")[0])


def _options(
    node: FleetNode,
    fleet: Fleet,
    pools: Mapping[str, PoolDemand],
    missing: Mapping[str, int],
) -> Iterator[tuple[LayoutAdvice, dict[str, int]]]:
    gpus = gpus_of(node.node, node.kind)
    idle = [
        place
        for place, state in enumerate(node.devices.states)
        if state == FREE and node.kind.gpus[place].mode is not GpuMode.DYNAMIC
    ]
    product = product_named(gpus[0].product) if gpus else None
    if not idle or product is None or not product.mig_profiles:
        return
    wanted = [pools[key] for key in sorted(missing) if admits(pools[key], fleet.label_keys)(node.facts)]
    if not wanted:
        return
    whole_node = len(idle) == len(gpus)
    asked = {pool.chiplet.profile for pool in wanted}
    for config, layout in named_layouts(product):
        # None stands for whole GPUs, which a layout without instances gives.
        if not asked.intersection([name for name, _ in layout] or [None]):
            continue
        helped = _helped(layout, len(idle) if whole_node else 1, product, node, wanted, missing)
        if not helped or (not layout and not whole_node):
            continue
        if whole_node:
            yield _advice(node, "all", layout, config, helped), helped
        elif layout:
            place = idle[0]
            yield _advice(node, gpus[place].uuid, layout, None, helped), helped


def _helped(
    layout: Layout,
    gpus: int,
    product: GpuProduct,
    node: FleetNode,
    wanted: Iterable[PoolDemand],
    missing: Mapping[str, int],
) -> dict[str, int]:
    """How many executors of which pools would find a place with a layout on that many GPUs."""
    room = {name: count * gpus for name, count in layout}
    whole = gpus if not layout else 0
    helped: dict[str, int] = {}
    for pool in sorted(wanted, key=lambda one: (-_size(one), one.key)):
        demand = pool.chiplet
        if demand.product is not None and demand.product.replace(" ", "-") != product.label:
            continue
        if demand.shape is ChipletShape.GPU:
            linked = demand.interconnect is not Interconnect.NVLINK_REQUIRED or demand.count == 1
            fits = whole // demand.count if linked or _switched(node) else 0
            count = min(fits, missing[pool.key])
            whole -= count * demand.count
        else:
            profile = product.profile(demand.profile or "")
            enough = profile is not None and profile.memory_mib >= (demand.memory_mib or 0)
            count = min(room.get(demand.profile or "", 0), missing[pool.key]) if enough else 0
            room[demand.profile or ""] = room.get(demand.profile or "", 0) - count
        if count:
            helped[pool.key] = count
    return helped


def _switched(node: FleetNode) -> bool:
    topology = node.node.topology
    return topology is not None and all(gpu.nvswitch for gpu in topology.gpus)


def _advice(
    node: FleetNode, device: str, layout: Layout, config: str | None, helped: Mapping[str, int]
) -> LayoutAdvice:
    told = ", ".join(f"{count} of {key}" for key, count in sorted(helped.items()))
    profiles = tuple(profile for profile, count in layout for _ in range(count))
    return LayoutAdvice(
        node.node.name, device, config, profiles, tuple(sorted(helped)), f"would make room for {told}"
    )
