"""Placement policies to compare with, written for this benchmark on the same geometry.

- first_fit: the first node, GPU and slice that will do.
- best_fit: the node that has least left afterwards, then the GPU that has.
- packed: GPUs in use before idle ones, nodes in use before idle ones.
- fgd: fragmentation gradient descent (ATC '23): the choice after which typical jobs lose least. A free slice
  of a node is a fragment for a job that does not fit on the node at all, or not on the slice's GPU.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from superinfer_bench.placement.jobs import Job
from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.fit import free_slices, instance_options
from superinfer_core.placement.hardware import FREE, FULL, GpuKind


@dataclass(slots=True, eq=False)
class SimNode:
    """One node of a simulated cluster."""

    name: str
    model: str
    kind: GpuKind | None
    states: list[int]
    cpu_milli: int
    memory_mib: int

    def has_room(self, job: Job) -> bool:
        """Whether everything but GPUs would do."""
        return (
            self.cpu_milli >= job.cpu_milli
            and self.memory_mib >= job.memory_mib
            and (not job.models or self.model in job.models)
        )

    def free(self) -> int:
        """Free memory slices."""
        return sum(free_slices(self.kind, state) for state in self.states) if self.kind is not None else 0


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for a job: positions of GPUs and their state afterwards."""

    places: tuple[int, ...]
    new: int


Policy = Callable[[Sequence[SimNode], Job], tuple[SimNode, Spot] | None]


def spots(kind: GpuKind, states: Sequence[int], demand: ChipletDemand) -> Iterator[Spot]:
    """Every place on a node worth telling apart; of GPUs in the same state the first."""
    if demand.shape is ChipletShape.GPU:
        free = [place for place, state in enumerate(states) if state == FREE]
        if len(free) >= demand.count:
            yield Spot(tuple(free[: demand.count]), FULL)
        return
    seen: set[int] = set()
    for place, state in enumerate(states):
        if state in seen:
            continue
        seen.add(state)
        for new, _ in instance_options(kind, demand, state):
            yield Spot((place,), new)


def first_fit(nodes: Sequence[SimNode], job: Job) -> tuple[SimNode, Spot] | None:
    """See the module."""
    for node in nodes:
        if node.kind is not None and node.has_room(job):
            for spot in spots(node.kind, node.states, job.chiplet):
                return node, spot
    return None


def best_fit(nodes: Sequence[SimNode], job: Job) -> tuple[SimNode, Spot] | None:
    """See the module."""
    return _least(nodes, job, lambda node, spot: (node.free(), _left(node, spot), node.cpu_milli))


def packed(nodes: Sequence[SimNode], job: Job) -> tuple[SimNode, Spot] | None:
    """See the module."""

    def cost(node: SimNode, spot: Spot) -> tuple[int, ...]:
        shared = node.states[spot.places[0]] != FREE
        active = any(state != FREE for state in node.states)
        return (0 if shared else 1 if active else 2, _left(node, spot), node.free())

    return _least(nodes, job, cost)


def _left(node: SimNode, spot: Spot) -> int:
    return free_slices(node.kind, spot.new) if node.kind is not None else 0


def _least(
    nodes: Sequence[SimNode], job: Job, cost: Callable[[SimNode, Spot], tuple[int, ...]]
) -> tuple[SimNode, Spot] | None:
    best: tuple[tuple[int, ...], SimNode, Spot] | None = None
    for node in nodes:
        if node.kind is None or not node.has_room(job):
            continue
        for spot in spots(node.kind, node.states, job.chiplet):
            priced = cost(node, spot)
            if best is None or priced < best[0]:
                best = (priced, node, spot)
    return None if best is None else best[1:]


class Fragmentation:
    """Expected fragments of a node over a sample of typical jobs, remembered by GPU state."""

    def __init__(self, typical: Sequence[tuple[Job, float]]) -> None:
        self._typical = typical
        self._fits: dict[tuple[int, int], bool] = {}
        self._known: dict[tuple[object, ...], float] = {}

    def of(self, node: SimNode) -> float:
        """Expected memory slices that a typical job could not use."""
        if node.kind is None:
            return 0.0
        return self._of(node.kind, node.states, node.cpu_milli, node.memory_mib, node.model)

    def after(self, node: SimNode, spot: Spot, job: Job) -> float:
        """The same once a job is in its spot."""
        assert node.kind is not None
        states = list(node.states)
        for place in spot.places:
            states[place] = spot.new
        cpu, memory = node.cpu_milli - job.cpu_milli, node.memory_mib - job.memory_mib
        return self._of(node.kind, states, cpu, memory, node.model)

    def _of(self, kind: GpuKind, states: Sequence[int], cpu: int, memory: int, model: str) -> float:
        key = (tuple(sorted(states)), cpu, memory, model)
        known = self._known.get(key)
        if known is None:
            if len(self._known) > 500_000:
                self._known.clear()
            known = self._known[key] = self._work_out(kind, states, cpu, memory, model)
        return known

    def _work_out(self, kind: GpuKind, states: Sequence[int], cpu: int, memory: int, model: str) -> float:
        free = [free_slices(kind, state) for state in states]
        total = sum(free)
        idle = sum(state == FREE for state in states)
        expected = 0.0
        for number, (job, share) in enumerate(self._typical):
            fitting = job.cpu_milli <= cpu and job.memory_mib <= memory
            fitting = fitting and (not job.models or model in job.models)
            if not fitting:
                expected += share * total
            elif job.chiplet.shape is ChipletShape.GPU:
                expected += share * (total - 8 * idle if idle >= job.chiplet.count else total)
            else:
                lost = sum(
                    slices
                    for state, slices in zip(states, free, strict=True)
                    if slices and not self._fit(kind, number, job, state)
                )
                expected += share * lost
        return expected

    def _fit(self, kind: GpuKind, number: int, job: Job, state: int) -> bool:
        key = (number, state)
        found = self._fits.get(key)
        if found is None:
            found = self._fits[key] = bool(instance_options(kind, job.chiplet, state))
        return found


def fgd(fragmentation: Fragmentation) -> Policy:
    """See the module."""

    def place(nodes: Sequence[SimNode], job: Job) -> tuple[SimNode, Spot] | None:
        best: tuple[float, SimNode, Spot] | None = None
        for node in nodes:
            if node.kind is None or not node.has_room(job):
                continue
            before = fragmentation.of(node)
            for spot in spots(node.kind, node.states, job.chiplet):
                grown = fragmentation.after(node, spot, job) - before
                if best is None or grown < best[0] - 1e-9:
                    best = (grown, node, spot)
        return None if best is None else best[1:]

    return place
