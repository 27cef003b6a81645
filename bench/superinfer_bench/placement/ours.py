"""The planner as the operator uses it, as one of the policies of the fill benchmark."""

from collections import Counter

from superinfer_bench.placement.baselines import SimNode
from superinfer_bench.placement.jobs import Input, Job, with_models
from superinfer_core.api.v1alpha1.chipletpool import Allocation
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.index import Change, PlacementIndex
from superinfer_core.placement.snapshot import ExecutorPhase, RunningExecutor, Snapshot


class OurPlanner:
    """Every job is a pool of one executor; arrivals and departures are changes to the index."""

    def __init__(self, given: Input) -> None:
        sets = sorted({job.models for job in given.jobs if job.models}, key=sorted)
        self._labels = {group: f"models/{number}" for number, group in enumerate(sets)}
        nodes = tuple(with_models(node, given.models, self._labels) for node in given.nodes)
        self._given = given
        mix = Counter(job.chiplet for job in given.jobs)
        self.index = PlacementIndex(
            Snapshot(nodes, (), typical=tuple(mix.items()), labels=tuple(self._labels.values()))
        )
        self._running: dict[int, RunningExecutor] = {}

    def place(self, number: int, job: Job) -> bool:
        """Place a job; False where it is refused."""
        pool = PoolDemand(
            f"bench/{number}",
            f"{number:09}",
            1,
            job.chiplet,
            allocation=Allocation.DRA,
            node_selector={self._labels[job.models]: "true"} if job.models else {},
            requests={"cpu": job.cpu_milli, "memory": job.memory_mib << 20},
        )
        self.index.apply(Change(pools=(pool,)))
        made = self.index.plan(0.0)
        if not made.create:
            self.index.apply(Change(gone_pools=(pool.key,)))
            return False
        (assignment,) = made.create
        executor = RunningExecutor(
            f"{number}-0-1",
            pool.key,
            0,
            1,
            assignment.node,
            phase=ExecutorPhase.READY,
            planned_devices=assignment.chiplet.devices,
            count=len(assignment.chiplet.devices),
            requests=pool.requests,
        )
        self._running[number] = executor
        self.index.apply(Change(executors=(executor,)))
        return True

    def leave(self, number: int) -> None:
        """A job leaves."""
        executor = self._running.pop(number)
        self.index.apply(Change(gone_executors=(executor.name,), gone_pools=(executor.pool,)))

    def sim_nodes(self) -> list[SimNode]:
        """What is left, in the terms of the other policies."""
        self.index.plan(0.0)
        return [
            SimNode(
                node.node.name,
                self._given.models.get(node.node.name, ""),
                node.kind.gpus[0] if node.kind.gpus else None,
                list(node.devices.states),
                node.free.get("cpu", 0),
                node.free.get("memory", 0) >> 20,
            )
            for node in self.index.fleet
        ]
