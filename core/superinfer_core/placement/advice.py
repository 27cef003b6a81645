"""Which MIG layout would make room for executors that have none.

Promise: pure advice; nothing is reconfigured by it. Only GPUs nobody uses are considered. A node that is idle
as a whole gets the name of a configuration as NVIDIA's mig-parted ships them (label nvidia.com/mig.config);
on a node in use, single idle GPUs get the list of instances they should have. Each piece of advice takes
into account what the advice before it already makes room for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.fleet import Fleet, FleetNode, Group
from superinfer_core.placement.geometry import (
    COMPUTE_SLICES,
    MEMORY_SLICES,
    GpuProduct,
    MigProfile,
    product_named,
)
from superinfer_core.placement.hardware import FREE, GpuMode
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
    sites = list(_sites(fleet)) if missing else []
    while missing and len(found) < MAX_ADVICE:
        wishes = _Wishes(fleet, pools, missing)
        best: tuple[tuple[int, int, str, str], _Offer, FleetNode, str | None] | None = None
        for site in sites:
            node = site.next_node(fleet, used)
            if node is None:
                continue
            for offer in wishes.offers(site, node):
                config = offer.config if site.whole_node else None
                rank = (-offer.gain, 0 if config else 1, node.node.name, config or "")
                if best is None or rank < best[0]:
                    best = (rank, offer, node, config)
        if best is None:
            break
        _, offer, node, config = best
        found.append(_advice(node, offer, config))
        used.add(node.node.name)
        for key, count in offer.helped.items():
            missing[key] -= count
            if missing[key] <= 0:
                del missing[key]
    return found


@dataclass(frozen=True, slots=True)
class _Offer:
    """A layout, whom it would help, and by how many slices."""

    config: str
    layout: Layout
    helped: Mapping[str, int]
    gain: int


@dataclass(slots=True, eq=False)
class _Site:
    """Nodes of one group with idle GPUs: the first of them that has not been advised yet speaks for all.

    Attributes:
        group: which.
        product: of its GPUs.
        switched: they are all on one switch.
        gpus: how many a layout would be for: all of an idle node, or one.
        whole_node: all are idle.
        node: the node that spoke last.
    """

    group: Group
    product: GpuProduct
    switched: bool
    gpus: int
    whole_node: bool
    node: FleetNode

    def next_node(self, fleet: Fleet, used: set[str]) -> FleetNode | None:
        """Who speaks now."""
        if self.node.node.name in used:
            after = fleet.first_of(self.group, used)
            if after is None:
                return None
            self.node = after
        return self.node


def _sites(fleet: Fleet) -> Iterator[_Site]:
    for group in fleet.groups.values():
        if FREE not in group.states:
            continue
        idle = [
            place
            for place, state in enumerate(group.states)
            if state == FREE and group.kind.gpus[place].mode is not GpuMode.DYNAMIC
        ]
        node = fleet.first_of(group, set()) if idle else None
        product = product_named(node.gpus[0].product) if node is not None and node.gpus else None
        if node is None or product is None or not product.mig_profiles:
            continue
        whole_node = len(idle) == len(group.states)
        switched = all(gpu.nvswitch for gpu in node.gpus)
        yield _Site(group, product, switched, len(idle) if whole_node else 1, whole_node, node)


class _Wishes:
    """What is missing at one moment, and what layouts would do for it; remembered by what decides it."""

    def __init__(self, fleet: Fleet, pools: Mapping[str, PoolDemand], missing: Mapping[str, int]) -> None:
        self._missing = missing
        wanted = sorted((pools[key] for key in missing), key=lambda one: (-one.chiplet.rough_size, one.key))
        self._wanted = [(pool, admits(pool, fleet.label_keys)) for pool in wanted]
        self._pools = pools
        self._known: dict[tuple[int, str, int, bool, bool], tuple[_Offer, ...]] = {}

    def offers(self, site: _Site, node: FleetNode) -> tuple[_Offer, ...]:
        """Layouts that would help somebody."""
        key = (site.group.facts_number, site.product.label, site.gpus, site.whole_node, site.switched)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(self._find(site, node))
        return found

    def _find(self, site: _Site, node: FleetNode) -> Iterator[_Offer]:
        wanted = [pool for pool, judge in self._wanted if judge(node.facts)]
        # None stands for whole GPUs, which a layout without instances gives.
        asked = {pool.chiplet.profile for pool in wanted}
        for config, layout in named_layouts(site.product) if wanted else ():
            if not asked.intersection([name for name, _ in layout] or [None]):
                continue
            if not layout and not site.whole_node:
                continue
            helped = _helped(layout, site, wanted, self._missing)
            if helped:
                gain = sum(self._slices(key, site.product) * count for key, count in helped.items())
                yield _Offer(config, layout, helped, gain)

    def _slices(self, key: str, product: GpuProduct) -> int:
        """Memory slices of one executor of a pool, on that product."""
        chiplet = self._pools[key].chiplet
        profile = product.profile(chiplet.profile or "")
        return profile.memory_slices if profile is not None else MEMORY_SLICES * chiplet.count


def _helped(
    layout: Layout, site: _Site, wanted: Iterable[PoolDemand], missing: Mapping[str, int]
) -> dict[str, int]:
    """Executors by pool, the larger first, that would find a place with a layout on the GPUs of a site."""
    product = site.product
    room = {name: count * site.gpus for name, count in layout}
    whole = site.gpus if not layout else 0
    helped: dict[str, int] = {}
    for pool in wanted:
        demand = pool.chiplet
        if demand.product is not None and demand.product.replace(" ", "-") != product.label:
            continue
        if demand.shape is ChipletShape.GPU:
            linked = demand.interconnect is not Interconnect.NVLINK_REQUIRED or demand.count == 1
            fits = whole // demand.count if linked or site.switched else 0
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


def _advice(node: FleetNode, offer: _Offer, config: str | None) -> LayoutAdvice:
    """As told: for the whole node with a configuration, else for its first idle GPU."""
    device = "all" if config else node.gpus[node.devices.states.index(FREE)].uuid
    told = ", ".join(f"{count} of {key}" for key, count in sorted(offer.helped.items()))
    profiles = tuple(profile for profile, count in offer.layout for _ in range(count))
    helped = tuple(sorted(offer.helped))
    return LayoutAdvice(node.node.name, device, config, profiles, helped, f"would make room for {told}")
