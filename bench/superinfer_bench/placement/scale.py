"""How long a plan takes: a whole one for a large cluster, and one change to a cluster that runs.

The cluster: half of the nodes with whole H200s behind NVSwitch, a quarter cut beforehand, a quarter cut on
demand. The pools fill most of it. A change is one of: a pool scaled by one, an executor gone, a GPU unhealthy
or healthy again, a node cordoned or not; each is taken into the index and planned.
"""

import gc
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from superinfer.percentiles import nearest_rank
from superinfer_core.api.v1alpha1.chipletpool import Allocation, ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.geometry import PRODUCTS
from superinfer_core.placement.index import Change, PlacementIndex
from superinfer_core.placement.node import HEALTHY, Gpu, Health, HealthState, MigInstance, Node, Topology
from superinfer_core.placement.outcome import Assignment, Plan
from superinfer_core.placement.snapshot import ExecutorPhase, RunningExecutor, Snapshot

_H200: Final = PRODUCTS["NVIDIA H200"]
_LAYOUT: Final = (("3g.71gb", 0, 4), ("2g.35gb", 4, 2), ("1g.18gb", 6, 1))
_SICK: Final = Health(HealthState.UNHEALTHY, "Xid79")
_DEMANDS: Final = (
    (ChipletDemand(ChipletShape.GPU), Allocation.DEVICE_PLUGIN, 0.6),
    (ChipletDemand(ChipletShape.GPU, count=2, interconnect=Interconnect.NVLINK_REQUIRED), None, 0.3),
    (ChipletDemand(ChipletShape.GPU, count=4, interconnect=Interconnect.NVLINK_REQUIRED), None, 0.2),
    (ChipletDemand(ChipletShape.GPU, count=8, interconnect=Interconnect.NVLINK_REQUIRED), None, 0.15),
    (ChipletDemand(ChipletShape.MIG, "3g.71gb"), None, 1.6),
    (ChipletDemand(ChipletShape.MIG, "2g.35gb"), None, 1.6),
    (ChipletDemand(ChipletShape.MIG, "1g.18gb"), None, 1.6),
    (ChipletDemand(ChipletShape.MIG, "3g.71gb"), Allocation.DRA, 1.6),
    (ChipletDemand(ChipletShape.MIG, "1g.35gb"), Allocation.DRA, 0.8),
    (ChipletDemand(ChipletShape.MIG, "1g.18gb"), Allocation.DRA, 3.0),
    (ChipletDemand(ChipletShape.MIG, "2g.35gb"), Allocation.DRA, 0.8),
)
"""Chiplets, allocator, and executors for each node of the cluster."""

POOLS_OF_EACH: Final = 45


@dataclass(frozen=True, slots=True)
class Timing:
    """What was measured."""

    nodes: int
    gpus: int
    pools: int
    executors: int
    full_plan_s: float
    full_plan_cpu_s: float
    change_ms: dict[str, float]
    change_cpu_ms: dict[str, float]
    changes: int

    def as_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {
            "full_plan_s": round(self.full_plan_s, 3),
            "full_plan_cpu_s": round(self.full_plan_cpu_s, 3),
            "change_ms": {key: round(value, 3) for key, value in self.change_ms.items()},
            "change_cpu_ms": {key: round(value, 3) for key, value in self.change_cpu_ms.items()},
            "scale": {
                "nodes": self.nodes,
                "gpus": self.gpus,
                "pools": self.pools,
                "executors": self.executors,
                "changes": self.changes,
            },
        }


def big_cluster(nodes: int) -> tuple[Node, ...]:
    """See the module."""
    return tuple(_node(number) for number in range(nodes))


def big_pools(nodes: int) -> tuple[PoolDemand, ...]:
    """See the module."""
    made = []
    for kind, (chiplet, allocation, share) in enumerate(_DEMANDS):
        replicas = max(1, int(share * nodes / POOLS_OF_EACH))
        for number in range(POOLS_OF_EACH):
            name = f"bench/pool-{kind:02}-{number:02}"
            made.append(
                PoolDemand(name, name, replicas, chiplet, allocation=allocation or Allocation.DEVICE_PLUGIN)
            )
    return tuple(made)


def _node(number: int) -> Node:
    name = f"node-{number:05}"
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "topology.superinfer.dev/rack": f"rack-{number // 16}",
    }
    kind = number % 4
    layout = _LAYOUT if kind == 2 else ()
    gpus = tuple(
        Gpu(
            f"GPU-{number}-{index}",
            index,
            _H200.label,
            _H200.memory_mib,
            numa_node=index // 4,
            mig_enabled=kind >= 2,
            nvswitch=kind < 2,
            profiles=_H200.mig_profiles,
            instances=tuple(
                MigInstance(f"MIG-{number}-{index}-{at}", profile, start, size)
                for at, (profile, start, size) in enumerate(layout)
            ),
        )
        for index in range(8)
    )
    allocatable = {f"nvidia.com/mig-{profile}": 8 for profile, _, _ in layout}
    if kind < 2:
        allocatable = {"nvidia.com/gpu": 8}
    return Node(
        name,
        name,
        labels,
        allocatable=allocatable | {"cpu": 192_000, "memory": 2 << 40},
        topology=Topology(gpus, dynamic_mig=kind == 3),
    )


def measure(nodes: int, changes: int, seed: int, say: Callable[[str], None]) -> Timing:
    """Plan the whole, then change by change."""
    cluster, pools = big_cluster(nodes), big_pools(nodes)
    say(f"planning {sum(pool.replicas for pool in pools)} executors onto {8 * nodes} GPUs")
    # A process that lives long does not let the collector walk what stays: the cluster is mostly that.
    gc.collect()
    gc.freeze()
    started, cpu = time.perf_counter(), time.process_time()
    index = PlacementIndex(Snapshot(cluster, pools))
    made = index.plan(0.0)
    full_s, full_cpu_s = time.perf_counter() - started, time.process_time() - cpu
    say(f"full plan: {full_s:.1f} s ({full_cpu_s:.1f} s of CPU), {len(made.create)} executors placed")
    live = _Live(index, {pool.key: pool for pool in pools}, random.Random(seed))
    live.do(made)
    index.plan(0.0)
    gc.collect()
    gc.freeze()
    pairs = [live.change() for _ in range(changes)]
    gc.unfreeze()
    return Timing(
        nodes=nodes,
        gpus=8 * nodes,
        pools=len(pools),
        executors=len(made.create),
        full_plan_s=full_s,
        full_plan_cpu_s=full_cpu_s,
        change_ms=_quantiles([wall for wall, _ in pairs]),
        change_cpu_ms=_quantiles([cpu for _, cpu in pairs]),
        changes=changes,
    )


def _quantiles(times: Sequence[float]) -> dict[str, float]:
    return {name: nearest_rank(times, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}


class _Live:
    """The cluster as it runs, changed at random."""

    def __init__(self, index: PlacementIndex, pools: dict[str, PoolDemand], draw: random.Random) -> None:
        self._index, self._pools, self._draw = index, pools, draw
        self._names: list[str] = []
        self._at: dict[str, int] = {}
        self._pool_keys, self._node_names = sorted(pools), sorted(index.nodes)
        self._made = 0
        self._clock = 0.0

    def do(self, made: Plan) -> None:
        """Take in what a plan creates and ends, without measuring it."""
        ended = tuple(one.name for one in (*made.drain, *made.delete))
        executors = tuple(self._executor(one) for one in made.create)
        self._index.apply(Change(executors=executors, gone_executors=ended))
        self._forget(ended)
        for executor in executors:
            self._at[executor.name] = len(self._names)
            self._names.append(executor.name)

    def _forget(self, names: Iterable[str]) -> None:
        """Take names off the list in constant time: the last one takes the place."""
        for name in names:
            place = self._at.pop(name)
            last = self._names.pop()
            if last != name:
                self._names[place] = last
                self._at[last] = place

    def change(self) -> tuple[float, float]:
        """One change and its plan: milliseconds by the clock, and of CPU."""
        change = self._draw_change()
        self._clock += 600.0
        started, cpu = time.perf_counter(), time.process_time()
        self._index.apply(change)
        made = self._index.plan(self._clock)
        spent = 1000 * (time.perf_counter() - started), 1000 * (time.process_time() - cpu)
        self._forget(change.gone_executors)
        self.do(made)
        self._index.plan(self._clock)
        return spent

    def _draw_change(self) -> Change:
        kind = self._draw.choice(("scale", "gone", "sick", "cordon"))
        if kind == "scale":
            pool = self._pools[self._draw.choice(self._pool_keys)]
            pool = replace(pool, replicas=max(1, pool.replicas + self._draw.choice((-1, 1))))
            self._pools[pool.key] = pool
            return Change(pools=(pool,))
        if kind == "gone":
            return Change(gone_executors=(self._draw.choice(self._names),))
        node = self._index.nodes[self._draw.choice(self._node_names)]
        if kind == "cordon":
            return Change(nodes=(replace(node, schedulable=not node.schedulable),))
        assert node.topology is not None
        gpus = list(node.topology.gpus)
        at = self._draw.randrange(len(gpus))
        well = gpus[at].health.state is HealthState.HEALTHY
        gpus[at] = replace(gpus[at], health=_SICK if well else HEALTHY)
        return Change(nodes=(replace(node, topology=replace(node.topology, gpus=tuple(gpus))),))

    def _executor(self, one: Assignment) -> RunningExecutor:
        self._made += 1
        return RunningExecutor(
            f"{one.pool}-{one.slot}-{self._made}",
            one.pool,
            one.slot,
            1,
            one.node,
            phase=ExecutorPhase.READY,
            planned_devices=one.chiplet.devices,
            devices=one.chiplet.devices,
            resource=one.chiplet.resource,
            count=one.chiplet.count,
        )
