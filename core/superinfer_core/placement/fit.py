"""Whether a chiplet fits on a GPU, where, and what it would cost the others.

Promise: pure in its results; it remembers what it worked out, so one `Fitting` must stay with one thread. The
cost of a choice is what a typical mix of demands could place before and cannot after it: for each demand of
the mix, how many more of it would fit, times its size, times its share. Whole numbers, so that sums do not
depend on their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.geometry import COMPUTE_SLICES, MEMORY_SLICES, free_starts
from superinfer_core.placement.hardware import (
    COMPUTE_SHIFT,
    COMPUTE_UNIT,
    FREE,
    FULL,
    MASK,
    MEDIA,
    GpuKind,
    GpuMode,
    NodeKind,
)
from superinfer_core.placement.misfit import Misfit, instance_profile, misfit

MIX_SCALE: Final = 1000
"""Shares of the mix are whole numbers out of this."""

MAX_MIX: Final = 24
"""Demands of the mix; rarer ones hardly change what is chosen."""

GpuOption = tuple[int, int]


def instance_options(kind: GpuKind, demand: ChipletDemand, state: int) -> tuple[GpuOption, ...]:
    """Ways to place one more instance: (state afterwards, first memory slice or number of the piece)."""
    if kind.mode is GpuMode.INSTANCES:
        for number, piece in enumerate(kind.pieces):
            if piece.profile.name == demand.profile and not state >> number & 1:
                return ((state | 1 << number, number),)
        return ()
    profile = instance_profile(kind, demand)
    if kind.mode is GpuMode.WHOLE or profile is None:
        return ()
    media = profile.name.endswith("+me")
    if media and state & MEDIA:
        return ()
    added = profile.compute_slices * COMPUTE_UNIT | (MEDIA if media else 0)
    starts = free_starts(profile, mask=state & MASK, compute=state >> COMPUTE_SHIFT & COMPUTE_SLICES)
    return tuple(((state | profile.mask(start)) + added, start) for start in starts)


def size_in_slices(kind: GpuKind, demand: ChipletDemand) -> int:
    """Size of a demand on a kind of GPU, in memory slices."""
    if demand.shape is ChipletShape.GPU:
        return MEMORY_SLICES * demand.count
    profile = instance_profile(kind, demand)
    return max(1, profile.memory_slices) if profile is not None else 0


def free_slices(kind: GpuKind, state: int) -> int:
    """Memory slices nobody has."""
    if kind.mode is GpuMode.INSTANCES:
        return sum(
            max(1, piece.profile.memory_slices)
            for number, piece in enumerate(kind.pieces)
            if not state >> number & 1
        )
    return MEMORY_SLICES - (state & MASK).bit_count()


@dataclass(frozen=True, slots=True)
class Choice:
    """The best way to place a demand on a node in one state.

    Attributes:
        cost: compared as a tuple, less is better: wrong choices open to the kubelet, what the mix loses, and
            then the tightest fit.
        positions: of the GPUs; on a flat node empty: any `count` GPUs in state `old` will do.
        old, new: state of each GPU before and after.
        place: first memory slice, or number of the piece; -1 for whole GPUs.
        count: GPUs.
    """

    cost: tuple[int, ...]
    positions: tuple[int, ...]
    old: int
    new: int
    place: int
    count: int = 1


class Fitting:
    """Fits and costs, remembered. One per index; `mix` is what typical demands look like."""

    def __init__(self, mix: Mapping[ChipletDemand, int]) -> None:
        self._mix = typical_mix(mix)
        self._misfits: dict[tuple[int, ChipletDemand], Misfit | None] = {}
        self._options: dict[tuple[int, ChipletDemand, int], tuple[GpuOption, ...]] = {}
        self._packs: dict[tuple[int, ChipletDemand, int], int] = {}
        self._values: dict[tuple[int, int], int] = {}
        self._whole: dict[tuple[int, int], int] = {}
        self._kinds: dict[GpuKind, int] = {}
        self._by_id: dict[int, tuple[GpuKind, int]] = {}
        self._choices: dict[ChipletDemand, Choices] = {}

    def reweigh(self, mix: Mapping[ChipletDemand, int]) -> None:
        """Another mix: what fits stays known, what it costs does not."""
        self._mix = typical_mix(mix)
        self._values.clear()
        self._whole.clear()
        for choices in self._choices.values():
            choices.forget()

    def misfit(self, kind: GpuKind, demand: ChipletDemand) -> Misfit | None:
        """As the function of that name."""
        key = (self._number(kind), demand)
        if key not in self._misfits:
            self._misfits[key] = misfit(kind, demand)
        return self._misfits[key]

    def options(self, kind: GpuKind, demand: ChipletDemand, state: int) -> tuple[GpuOption, ...]:
        """As `instance_options`, empty where it is no fit at all."""
        key = (self._number(kind), demand, state)
        found = self._options.get(key)
        if found is None:
            fits = self.misfit(kind, demand) is None
            found = self._options[key] = instance_options(kind, demand, state) if fits else ()
        return found

    def pack(self, kind: GpuKind, demand: ChipletDemand, state: int) -> int:
        """The most instances of one MIG demand that still fit on a GPU."""
        key = (self._number(kind), demand, state)
        found = self._packs.get(key)
        if found is None:
            options = self.options(kind, demand, state)
            found = max((1 + self.pack(kind, demand, new) for new, _ in options), default=0)
            self._packs[key] = found
        return found

    def value(self, kind: GpuKind, state: int) -> int:
        """What the MIG demands of the mix can place on a GPU, weighed."""
        key = (self._number(kind), state)
        found = self._values.get(key)
        if found is None:
            found = sum(
                share * size_in_slices(kind, demand) * self.pack(kind, demand, state)
                for demand, share in self._mix
                if demand.shape is ChipletShape.MIG
            )
            self._values[key] = found
        return found

    def whole_value(self, node: NodeKind, free: int) -> int:
        """What the whole-GPU demands of the mix can place on a node whose GPUs `free` (bits) are unused."""
        key = (id(node), free.bit_count() if node.flat else free)
        found = self._whole.get(key)
        if found is None:
            found = sum(
                share * MEMORY_SLICES * demand.count * self._groups(node, demand, free)
                for demand, share in self._mix
                if demand.shape is ChipletShape.GPU
            )
            self._whole[key] = found
        return found

    def _groups(self, node: NodeKind, demand: ChipletDemand, free: int) -> int:
        """How many disjoint groups of GPUs the demand would find (greedily, on bridged nodes)."""
        usable = [
            place
            for place, kind in enumerate(node.gpus)
            if free >> place & 1 and self.misfit(kind, demand) is None
        ]
        if node.flat:
            linked = demand.count == 1 or demand.interconnect is not Interconnect.NVLINK_REQUIRED
            return len(usable) // demand.count if linked or node.nvlink else 0
        if demand.count == 1:
            return len(usable)
        groups = 0
        while (group := best_group(node, tuple(usable), demand)) is not None:
            groups += 1
            usable = [place for place in usable if place not in group]
        return groups

    def choose(self, node: NodeKind, states: Sequence[int], demand: ChipletDemand) -> Choice | None:
        """The cheapest way to place one executor on a node with GPUs in `states`; None if there is none.

        On a flat node the order of `states` does not matter.
        """
        if demand.shape is ChipletShape.GPU:
            return self._choose_whole(node, states, demand)
        return self._choose_instance(node, states, demand)

    def _choose_instance(self, node: NodeKind, states: Sequence[int], demand: ChipletDemand) -> Choice | None:
        free = free_bits(node, states)
        whole = self.whole_value(node, free)
        idle = free.bit_count()
        best: Choice | None = None
        seen: set[int] = set()
        for place, (kind, state) in enumerate(zip(node.gpus, states, strict=True)):
            if node.flat:
                if state in seen:
                    continue
                seen.add(state)
            options = self.options(kind, demand, state)
            if not options:
                continue
            before = self.value(kind, state)
            broken = whole - self.whole_value(node, free & ~(1 << place)) if free >> place & 1 else 0
            for new, where in options:
                loss = before - self.value(kind, new) + broken
                cost = (0, loss, free_slices(kind, new), idle, -where)
                if best is None or cost < best.cost:
                    best = Choice(cost, () if node.flat else (place,), state, new, where)
        return best

    def _choose_whole(self, node: NodeKind, states: Sequence[int], demand: ChipletDemand) -> Choice | None:
        free = free_bits(node, states)
        usable = tuple(
            place
            for place, kind in enumerate(node.gpus)
            if free >> place & 1 and self.misfit(kind, demand) is None
        )
        if len(usable) < demand.count:
            return None
        group = best_group(node, usable, demand, self._spoils(node, free))
        if group is None:
            return None
        after = free
        loss = 0
        for place in group:
            after &= ~(1 << place)
            loss += self.value(node.gpus[place], FREE)
        loss += self.whole_value(node, free) - self.whole_value(node, after)
        exact = int(needs_exact_devices(node, demand))
        cost = (exact, loss, after.bit_count(), node.missing_links(group) if demand.count > 1 else 0)
        return Choice(cost, () if node.flat else group, FREE, FULL, -1, demand.count)

    def _spoils(self, node: NodeKind, free: int) -> "_Spoils | None":
        return None if node.flat else _Spoils(self, node, free)

    def choose_apart(
        self, node: NodeKind, states: Sequence[int], demand: ChipletDemand, crowd: Sequence[int]
    ) -> Choice | None:
        """As `choose` for a MIG demand, on one of the least crowded GPUs."""
        found: list[tuple[int, tuple[int, ...], int, Choice]] = []
        for place, (kind, state) in enumerate(zip(node.gpus, states, strict=True)):
            for new, where in self.options(kind, demand, state):
                loss = self.value(kind, state) - self.value(kind, new)
                cost = (0, loss, free_slices(kind, new), -where)
                found.append((crowd[place], cost, place, Choice(cost, (place,), state, new, where)))
        return min(found, key=lambda item: item[:3])[3] if found else None

    def choices(self, demand: ChipletDemand) -> "Choices":
        """The choices of one demand, remembered by group."""
        return self._choices.setdefault(demand, Choices(self, demand))

    def _number(self, kind: GpuKind) -> int:
        """A small number for a kind: hashing a kind itself is slow."""
        known = self._by_id.get(id(kind))
        if known is None:
            number = self._kinds.setdefault(kind, len(self._kinds))
            known = self._by_id[id(kind)] = (kind, number)
        return known[1]


class Choices:
    """The best choice of one demand for every state of a node."""

    def __init__(self, fitting: Fitting, demand: ChipletDemand) -> None:
        self._fitting, self._demand = fitting, demand
        self._known: dict[tuple[int, tuple[int, ...]], Choice | None] = {}

    def forget(self) -> None:
        """Costs have changed."""
        self._known.clear()

    def of(self, kind: NodeKind, kind_number: int, states: tuple[int, ...]) -> Choice | None:
        """As `Fitting.choose`; nodes of one number are of one kind."""
        key = (kind_number, states)
        try:
            return self._known[key]
        except KeyError:
            found = self._known[key] = self._fitting.choose(kind, states, self._demand)
            return found


class _Spoils:
    """What taking a group of GPUs costs the groups others could have had."""

    def __init__(self, fitting: Fitting, node: NodeKind, free: int) -> None:
        self._fitting, self._node, self._free = fitting, node, free

    def __call__(self, group: tuple[int, ...]) -> int:
        after = self._free
        for place in group:
            after &= ~(1 << place)
        return -self._fitting.whole_value(self._node, after)


def best_group(
    node: NodeKind, usable: tuple[int, ...], demand: ChipletDemand, spoils: _Spoils | None = None
) -> tuple[int, ...] | None:
    """The GPUs (positions) of one executor: linked as asked, then spoiling least, then near each other."""
    if len(usable) < demand.count:
        return None
    if demand.count > 1 and demand.interconnect is Interconnect.NVLINK_REQUIRED and not node.nvlink:
        return None
    if node.flat:
        return usable[: demand.count]
    required = demand.count > 1 and demand.interconnect is Interconnect.NVLINK_REQUIRED
    wants_links = demand.count > 1 and demand.interconnect is not Interconnect.ANY
    best: tuple[tuple[int, int, int, tuple[int, ...]], tuple[int, ...]] | None = None
    for group in combinations(usable, demand.count):
        missing = node.missing_links(group) if wants_links else 0
        if required and missing:
            continue
        cost = (missing, spoils(group) if spoils else 0, node.numa_nodes(group), group)
        if best is None or cost < best[0]:
            best = (cost, group)
    return best[1] if best is not None else None


def needs_exact_devices(node: NodeKind, demand: ChipletDemand) -> bool:
    """Whether GPUs chosen at random on the node could violate the demand."""
    return demand.count > 1 and demand.interconnect is Interconnect.NVLINK_REQUIRED and not node.flat


def free_bits(node: NodeKind, states: Sequence[int]) -> int:
    """Positions of GPUs that can be had whole, as bits."""
    free = 0
    for place, (kind, state) in enumerate(zip(node.gpus, states, strict=True)):
        if state == FREE and kind.mode is not GpuMode.INSTANCES:
            free |= 1 << place
    return free


def typical_mix(weights: Mapping[ChipletDemand, int]) -> tuple[tuple[ChipletDemand, int], ...]:
    """Shares out of `MIX_SCALE` of the most frequent demands, in a fixed order."""
    relevant = {
        demand: weight
        for demand, weight in weights.items()
        if weight > 0 and demand.shape is not ChipletShape.CPU
    }
    frequent = sorted(relevant.items(), key=lambda item: (-item[1], _order(item[0])))[:MAX_MIX]
    total = sum(weight for _, weight in frequent)
    return tuple((demand, max(1, weight * MIX_SCALE // total)) for demand, weight in frequent)


def _order(demand: ChipletDemand) -> tuple[str, ...]:
    return (
        demand.shape.value,
        demand.profile or "",
        f"{demand.count:04}",
        demand.interconnect.value,
        demand.product or "",
        demand.isolation.value,
        str(demand.memory_mib),
    )
