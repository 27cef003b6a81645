"""The snapshot placement decides from, out of what is watched. Pure, but for what `Gathered` remembers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from superinfer_core.placement import (
    ForeignUse,
    Node,
    PlannerMemory,
    PlannerSettings,
    RunningExecutor,
    Snapshot,
    Topology,
)
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.watching.pods import ExecutorPod


@dataclass(slots=True, eq=False)
class Gathered:
    """What was made of watched facts last time: while those are the same objects, so is what is made of them.

    That is how planning round by round sees at a glance what has changed. One owner.
    """

    nodes: dict[str, tuple[Node, Topology | None, Node]] = field(default_factory=dict)
    executors: dict[str, tuple[ExecutorPod, tuple[str, ...] | None, RunningExecutor]] = field(
        default_factory=dict
    )
    foreign: tuple[ForeignUse, ...] = ()

    def joined(self, nodes: Iterable[Node], topologies: Mapping[str, Topology]) -> tuple[Node, ...]:
        """Nodes with their topologies."""
        fresh = {}
        for node in nodes:
            topology, known = topologies.get(node.name), self.nodes.get(node.name)
            if known is None or known[0] is not node or known[1] is not topology:
                known = (node, topology, replace(node, topology=topology))
            fresh[node.name] = known
        self.nodes = fresh
        return tuple([joined for _, _, joined in fresh.values()])

    def running(
        self, executors: Iterable[ExecutorPod], given: Mapping[str, tuple[str, ...]]
    ) -> list[tuple[ExecutorPod, RunningExecutor]]:
        """Pods as placement takes them."""
        fresh = {}
        for pod in executors:
            devices, known = given.get(pod.key), self.executors.get(pod.key)
            if known is None or known[0] is not pod or known[1] != devices:
                known = (pod, devices, running_executor(pod, devices))
            fresh[pod.key] = known
        self.executors = fresh
        return [(pod, running) for pod, _, running in fresh.values()]

    def same_if_equal(self, foreign: tuple[ForeignUse, ...]) -> tuple[ForeignUse, ...]:
        """What others hold: the tuple of last time where nothing is another."""
        if foreign != self.foreign:
            self.foreign = foreign
        return self.foreign


def make_snapshot(
    *,
    setups: Iterable[PoolSetup],
    nodes: Iterable[Node],
    topologies: Mapping[str, Topology],
    executors: Iterable[ExecutorPod],
    held: Mapping[tuple[str, str], int],
    given: Mapping[str, tuple[str, ...]],
    memory: PlannerMemory,
    settings: PlannerSettings,
    gathered: Gathered | None = None,
) -> Snapshot:
    """Everything at one moment.

    Executors of a pool that is not accepted are left as they are: a mistake in an edit must not end what
    serves. What they hold is counted as somebody else's. Executors whose pool is gone are planned, so that
    the plan ends them.

    Args:
        setups: of every pool.
        nodes: without topologies.
        topologies: by node.
        executors: pods of ours.
        held: what other pods hold, by (node, resource).
        given: device ids executors were really given, by namespace/name, where known.
        memory: of the last plan.
        settings: of the planner.
        gathered: from the last snapshot, where there was one; it is brought up to date.
    """
    gathered = gathered or Gathered()
    all_setups = list(setups)
    left_alone = {setup.key for setup in all_setups if setup.demand is None and not setup.record.deleting}
    planned, foreign = [], dict(held)
    devices: dict[tuple[str, str], list[str]] = {}
    for pod, running in gathered.running(executors, given):
        if pod.pool not in left_alone:
            planned.append(running)
            continue
        own = {running.resource: running.count} if running.resource is not None else {}
        for resource, amount in {**running.requests, **own}.items():
            at = (pod.node, resource)
            foreign[at] = foreign.get(at, 0) + amount
        if running.resource is not None:
            devices.setdefault((pod.node, running.resource), []).extend(running.held_devices)
    return Snapshot(
        nodes=gathered.joined(nodes, topologies),
        pools=tuple(setup.demand for setup in all_setups if setup.demand is not None),
        executors=tuple(planned),
        foreign=gathered.same_if_equal(
            tuple(
                ForeignUse(node, resource, amount, tuple(devices.get((node, resource), ())))
                for (node, resource), amount in sorted(foreign.items())
            )
        ),
        memory=memory,
        settings=settings,
    )


def running_executor(pod: ExecutorPod, devices: tuple[str, ...] | None) -> RunningExecutor:
    """An executor pod as placement takes it."""
    chiplet = pod.chiplet
    resource = str(chiplet.get("resource") or "") or None
    requests = {name: n for name, n in pod.requests.items() if name != resource}
    return RunningExecutor(
        # Two pools of one name in different namespaces have executors of one name.
        name=pod.key,
        pool=pod.pool,
        slot=pod.slot,
        incarnation=pod.incarnation,
        node=pod.node,
        revision=pod.revision,
        phase=pod.phase,
        terminating=pod.terminating,
        planned_devices=tuple(chiplet.get("devices") or ()),
        devices=devices,
        recreations=int(chiplet.get("recreations") or 0),
        resource=resource,
        count=int(chiplet.get("count") or 0),
        requests={**requests, "pods": 1},
        created_at=pod.created_at,
        device_unhealthy=pod.device_unhealthy,
    )
