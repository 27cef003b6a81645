"""`python -m superinfer_bench.placement.rounds`: what placement costs a round of the operator.

The population of `bench-operator` as facts in memory, MOCK nodes included. Pools are edited one after the
other; each time the snapshot is gathered and planned twice, anew and by difference, and both must say the
same. CPU time is told, because other work on the machine hardly changes that.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from superinfer_bench.operator.population import Size, documents
from superinfer_core.placement import (
    ExecutorPhase,
    Node,
    Plan,
    PlannerMemory,
    PlannerSettings,
    Snapshot,
    plan,
)
from superinfer_core.placement.node import Topology
from superinfer_core.placement.rounds import RoundPlanner
from superinfer_core.pods.settings import PodSettings
from superinfer_kube.resources import CHIPLET_POOLS, NODE_TOPOLOGIES, NODES
from superinfer_operator.placing.setup import PoolSetup, set_up
from superinfer_operator.placing.snapshot import Gathered, make_snapshot
from superinfer_operator.watching.hardware import hardware_reader
from superinfer_operator.watching.nodes import node_facts
from superinfer_operator.watching.pods import ExecutorPod
from superinfer_operator.watching.pools import pool_record

EDITS: Final = 40


class _Facts:
    """What the operator would have watched."""

    def __init__(self, size: Size) -> None:
        self.nodes: list[Node] = []
        self.pools: dict[str, PoolSetup] = {}
        self.pods: dict[str, ExecutorPod] = {}
        self._topologies: dict[str, Topology] = {}
        read = hardware_reader()
        for resource, document in documents(size):
            metadata = document["metadata"]
            metadata |= {"uid": metadata["name"], "generation": 1}
            if resource is NODES:
                self.nodes.append(node_facts(document))
            elif resource is NODE_TOPOLOGIES and (topology := read(document).topology) is not None:
                self._topologies[metadata["name"]] = topology
            elif resource is CHIPLET_POOLS:
                record = pool_record(document)
                self.pools[record.key] = set_up(record, {}, PodSettings(tls=False))

    def snapshot(self, gathered: Gathered | None) -> Snapshot:
        """As the operator gathers it."""
        return make_snapshot(
            setups=self.pools.values(),
            nodes=self.nodes,
            topologies=self._topologies,
            executors=[self.pods[key] for key in sorted(self.pods)],
            held={},
            given={},
            memory=PlannerMemory(),
            settings=PlannerSettings(),
            gathered=gathered,
        )

    def edit(self, key: str, by: int) -> None:
        """Somebody scales a pool."""
        setup = self.pools[key]
        assert setup.demand is not None
        demand = replace(setup.demand, replicas=setup.demand.replicas + by)
        self.pools[key] = replace(setup, demand=demand)

    def do(self, made: Plan) -> None:
        """Executors come and go as planned."""
        for ended in (*made.drain, *made.delete):
            del self.pods[ended.name]
        for one in made.create:
            namespace, _, pool = one.pool.partition("/")
            name = f"{pool}-{one.slot}-1"
            chiplet = {
                "node": one.node,
                "resource": one.chiplet.resource,
                "count": one.chiplet.count,
                "devices": list(one.chiplet.devices),
            }
            self.pods[f"{namespace}/{name}"] = ExecutorPod(
                namespace, name, name, one.pool, one.slot, 1, one.revision, chiplet, ExecutorPhase.READY
            )


def _cpu_ms(make: Callable[[], Plan], into: list[float]) -> Plan:
    started = time.process_time()
    made = make()
    into.append(1000 * (time.process_time() - started))
    return made


def main() -> int:
    """0 when both ways said the same throughout."""
    facts, planner, gathered = _Facts(Size()), RoundPlanner(), Gathered()
    anew: list[float] = []
    differing: list[float] = []
    idle: list[float] = []
    facts.do(planner.plan(facts.snapshot(gathered), 0.0))
    keys = sorted(facts.pools)
    for number in range(EDITS):
        facts.edit(keys[number * 37 % len(keys)], 1 if number % 2 else -1)
        now = float(number + 1)
        full = _cpu_ms(lambda now=now: plan(facts.snapshot(None), now), anew)  # type: ignore[misc]
        made = _cpu_ms(lambda now=now: planner.plan(facts.snapshot(gathered), now), differing)  # type: ignore[misc]
        if {one.name for one in made.keep} != {one.name for one in full.keep} or made.create != full.create:
            print(f"edit {number}: the two ways differ", file=sys.stderr)
            return 1
        facts.do(made)
        planner.plan(facts.snapshot(gathered), now)
        _cpu_ms(lambda now=now: planner.plan(facts.snapshot(gathered), now), idle)  # type: ignore[misc]
    print(f"{len(facts.nodes)} nodes, {len(facts.pools)} pools, {len(facts.pods)} executors; CPU of a round:")
    for name, times in (("planned anew", anew), ("by difference", differing), ("nothing changed", idle)):
        print(f"  {name}: {statistics.median(times):.1f} ms (median), {max(times):.1f} ms (most)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
