"""Fill a cluster with arrivals and departures, and see how full it gets.

Every policy sees the same seeded stream: arrivals drawn from the input, each followed by a departure of a
running job with a fixed chance. The stream ends when what was asked for and has not left amounts to a given
multiple of the cluster, so that every policy has long been refusing.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from superinfer_bench.placement.baselines import (
    Fragmentation,
    Policy,
    SimNode,
    Spot,
    best_fit,
    fgd,
    first_fit,
    packed,
)
from superinfer_bench.placement.jobs import Input, Job
from superinfer_bench.placement.ours import OurPlanner
from superinfer_core.placement.fit import size_in_slices
from superinfer_core.placement.hardware import FREE, describe

OFFERED: Final = 1.3
"""The stream ends when live demand is this multiple of the cluster."""
DEPARTS: Final = 0.45
"""Chance that an arrival is followed by a departure."""
TYPICAL: Final = 40
"""Kinds of jobs in the sample FGD and the fragmentation figure use, by frequency."""

POLICIES: Final = ("superinfer", "first_fit", "best_fit", "packed", "fgd")


@dataclass(frozen=True, slots=True)
class Filled:
    """How a policy did on an input.

    Attributes:
        policy, input: which.
        allocated_gpu_ratio, refused, fragmentation: when as much had been asked for as there is.
        arrived: jobs of the whole stream.
        allocated_when_full: at the end of the stream, long after refusals began.
    """

    policy: str
    input: str
    allocated_gpu_ratio: float
    refused: int
    arrived: int
    fragmentation: float
    allocated_when_full: float

    def as_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {
            "policy": self.policy,
            "input": self.input,
            "allocated_gpu_ratio": round(self.allocated_gpu_ratio, 4),
            "refused": self.refused,
            "arrived": self.arrived,
            "fragmentation": round(self.fragmentation, 4),
            "allocated_when_full": round(self.allocated_when_full, 4),
        }


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and, with it, which of the running jobs leaves afterwards (a share of their number)."""

    job: Job
    leaves: float | None


def stream(given: Input, seed: int) -> Iterator[Arrival]:
    """Arrivals without end."""
    draw = random.Random(seed)
    while True:
        job = draw.choice(given.jobs)
        leaves = draw.random() if draw.random() < DEPARTS else None
        yield Arrival(job, leaves)


def typical(jobs: Sequence[Job]) -> list[tuple[Job, float]]:
    """The most frequent jobs with their shares."""
    counted = Counter(jobs).most_common(TYPICAL)
    total = sum(count for _, count in counted)
    return [(job, count / total) for job, count in counted]


class Simulated:
    """A cluster under one of the baselines."""

    def __init__(self, given: Input, policy: Policy) -> None:
        self.nodes = sim_nodes(given)
        self._policy = policy
        self._held: dict[int, tuple[SimNode, Spot, tuple[int, ...], Job]] = {}

    def place(self, number: int, job: Job) -> bool:
        """Place a job; False where it is refused."""
        found = self._policy(self.nodes, job)
        if found is None:
            return False
        node, spot = found
        before = tuple(node.states[place] for place in spot.places)
        for place in spot.places:
            node.states[place] = spot.new
        node.cpu_milli -= job.cpu_milli
        node.memory_mib -= job.memory_mib
        # What the job holds of each GPU is a difference: others may come and go beside it.
        self._held[number] = (node, spot, tuple(spot.new - old for old in before), job)
        return True

    def leave(self, number: int) -> None:
        """A job leaves."""
        node, spot, held, job = self._held.pop(number)
        for place, part in zip(spot.places, held, strict=True):
            node.states[place] -= part
        node.cpu_milli += job.cpu_milli
        node.memory_mib += job.memory_mib


def sim_nodes(given: Input) -> list[SimNode]:
    """The nodes of an input, idle."""
    made = []
    for node in given.nodes:
        kinds = describe(node).gpus
        made.append(
            SimNode(
                node.name,
                given.models.get(node.name, ""),
                kinds[0] if kinds else None,
                [FREE] * len(kinds),
                node.allocatable.get("cpu", 0),
                node.allocatable.get("memory", 0) >> 20,
            )
        )
    return made


def fill(given: Input, name: str, seed: int) -> Filled:
    """Run one policy on one input."""
    fragmentation = Fragmentation(typical(given.jobs))
    kind = next(node.kind for node in sim_nodes(given) if node.kind is not None)
    cluster: Simulated | OurPlanner
    if name == "superinfer":
        cluster = OurPlanner(given)
    else:
        policies: dict[str, Policy] = {
            "first_fit": first_fit,
            "best_fit": best_fit,
            "packed": packed,
            "fgd": fgd(fragmentation),
        }
        cluster = Simulated(given, policies[name])
    # Who is offered, and who of them runs: refusals differ by policy, the stream does not.
    offered: list[tuple[int, int, bool]] = []
    live = used = refused = arrived = 0
    at_capacity: tuple[float, int, float] | None = None
    for arrival in stream(given, seed):
        size = size_in_slices(kind, arrival.job.chiplet)
        placed = cluster.place(arrived, arrival.job)
        refused += not placed
        used += size if placed else 0
        offered.append((arrived, size, placed))
        arrived += 1
        live += size
        if arrival.leaves is not None:
            number, gone, ran = offered.pop(int(arrival.leaves * len(offered)))
            live -= gone
            if ran:
                cluster.leave(number)
                used -= gone
        if at_capacity is None and live >= given.slices:
            at_capacity = used / given.slices, refused, _fragmented(cluster, fragmentation)
        if live >= OFFERED * given.slices:
            break
    assert at_capacity is not None
    return Filled(
        name, given.name, at_capacity[0], at_capacity[1], arrived, at_capacity[2], used / given.slices
    )


def _fragmented(cluster: Simulated | OurPlanner, fragmentation: Fragmentation) -> float:
    """Share of the free slices that a typical job could not use."""
    nodes = cluster.nodes if isinstance(cluster, Simulated) else cluster.sim_nodes()
    free = sum(node.free() for node in nodes)
    return sum(fragmentation.of(node) for node in nodes) / free if free else 0.0
