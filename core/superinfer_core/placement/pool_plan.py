"""Planning pools against the fleet: what ends, what stays, and where new executors go.

Promise: pools are taken by priority, then larger chiplets first (they fit in fewer places), then by key and
uid. Nothing here reads the API; the fleet it is given is changed, and `taken` says where.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.fit import Fitting
from superinfer_core.placement.fleet import Fleet, FleetNode, clique_of, fault_domain
from superinfer_core.placement.landing import Landing
from superinfer_core.placement.lifecycle import (
    Decision,
    Trouble,
    Want,
    decide,
    end_all,
    mismatch_verdict,
)
from superinfer_core.placement.node import Node
from superinfer_core.placement.outcome import (
    Assignment,
    Chiplet,
    Ended,
    EndReason,
    Flagged,
    Kept,
    Plan,
    Unplaced,
)
from superinfer_core.placement.peers import peer_slots
from superinfer_core.placement.search import Search, admits, hopeful
from superinfer_core.placement.snapshot import ExecutorPhase, PlannerSettings, RunningExecutor
from superinfer_core.placement.spread import Spread
from superinfer_core.placement.standing import evicting, gpu_domain, instance_domain, node_domain


def pool_order(pool: PoolDemand) -> tuple[int, int, str, str]:
    """Who is placed first."""
    return (-pool.priority, -pool.chiplet.rough_size, pool.key, pool.uid)


@dataclass(slots=True, eq=False)
class Place:
    """Where a running executor is: remembered from plan to plan while executor and node stay the same."""

    executor: RunningExecutor
    node: Node
    fault_domain: tuple[str, ...]
    parents: tuple[str, ...]
    start: int | None
    kept: Kept | None = None
    of: ChipletDemand | None = None
    chiplet: Chiplet | None = None

    def keep(self, pool: PoolDemand, peer: int | None) -> Kept:
        """The executor as a plan tells it; the same object as long as nothing about it changes."""
        kept = self.kept
        chiplet = self.chiplet
        if chiplet is None or self.of is not pool.chiplet:
            self.of, kept = pool.chiplet, None
            chiplet = self.chiplet = _held(pool, self)
        if kept is None or kept.assignment.peer != peer:
            one = self.executor
            assignment = Assignment(
                pool=one.pool,
                slot=one.slot,
                node=one.node,
                chiplet=chiplet,
                fault_domain=self.fault_domain,
                peer=peer,
                recreations=one.recreations,
                revision=one.revision,
            )
            kept = self.kept = Kept(one.name, assignment)
        return kept


@dataclass(slots=True, eq=False)
class PlanDraft:
    """A plan while it is made."""

    create: list[Assignment] = field(default_factory=list)
    keep: list[Kept] = field(default_factory=list)
    drain: list[Ended] = field(default_factory=list)
    delete: list[Ended] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    flagged: list[Flagged] = field(default_factory=list)

    def plan(self) -> Plan:
        """The finished plan."""
        return Plan(
            tuple(self.create),
            tuple(self.keep),
            tuple(self.drain),
            tuple(self.delete),
            tuple(self.unplaced),
            tuple(self.flagged),
        )


class PoolPlanner:
    """Plans pools one after the other."""

    def __init__(
        self,
        fleet: Fleet,
        fitting: Fitting,
        nodes: Mapping[str, Node],
        failed: Mapping[str, Mapping[str, str]],
        settings: PlannerSettings,
        now: float,
        places: dict[str, Place],
        explain: Callable[[PoolDemand, int, Sequence[str]], Unplaced],
    ) -> None:
        self._fleet, self._fitting, self._nodes = fleet, fitting, nodes
        self._failed, self._settings, self._now = failed, settings, now
        self._known = places
        self._explain = explain
        self._open: list[tuple[PoolDemand, Decision]] = []
        self._retried: set[str] = set()
        self._kept: dict[str, list[Place]] = {}
        self.decisions: dict[str, Decision] = {}
        self.taken: list[str] = []

    def end(self, key: str, executors: Sequence[RunningExecutor], draft: PlanDraft) -> None:
        """End the executors of a pool that is gone."""
        decision = end_all(executors, f"pool {key} is gone")
        draft.drain.extend(decision.drain)
        draft.delete.extend(decision.delete)

    def decide(self, pool: PoolDemand, executors: Sequence[RunningExecutor], draft: PlanDraft) -> None:
        """What becomes of a pool's executors; what it lacks is placed by `fill`."""
        crowds: dict[str, int] = {}

        def burden(executor: RunningExecutor) -> tuple[int, ...]:
            """How much a pool would rather give this executor up than another."""
            if not crowds:
                crowds.update(Counter([other.node for other in executors if not other.terminating]))
            node = self._nodes.get(executor.node)
            cordoned = int(node is None or not node.schedulable or not node.ready)
            return (cordoned, crowds.get(executor.node, 0))

        nodes, failed = self._nodes, self._failed

        def judge(executor: RunningExecutor) -> Trouble | Flagged | None:
            """What is wrong with an executor: mostly nothing, which is seen at once."""
            node = nodes.get(executor.node)
            if node is None or node.taints or executor.node in failed or executor.device_unhealthy:
                return self._judge(pool, executor)
            as_planned = executor.devices is None or executor.devices == executor.planned_devices
            if as_planned and executor.phase is not ExecutorPhase.FAILED:
                return None
            return self._judge(pool, executor)

        decision = decide(pool, executors, judge, burden)
        draft.drain.extend(decision.drain)
        draft.delete.extend(decision.delete)
        draft.flagged.extend(decision.flagged)
        self._open.append((pool, decision))
        self.decisions[pool.key] = decision

    def retry(self, pool: PoolDemand, decision: Decision) -> None:
        """Look again for what a pool lacks; nothing else about it has changed, so only that is told."""
        self._open.append((pool, decision))
        self._retried.add(pool.key)

    def fill(self, draft: PlanDraft) -> None:
        """Place what the pools lack, missing executors before replacements of running ones."""
        created: dict[str, list[tuple[Want, Landing]]] = {}
        for pool, decision in self._open:
            if decision.wants:
                created[pool.key] = self._place(pool, decision, draft)
        for pool, decision in self._open:
            # What was missing and has a place now has to serve before anything else is replaced.
            if decision.surge is not None and not created.get(pool.key):
                created[pool.key] = self._surge(pool, decision, decision.surge, draft)
        for pool, decision in self._open:
            if pool.key in self._retried and not created.get(pool.key):
                continue
            self._write(pool, self._kept_of(pool, decision), created.get(pool.key, []), draft)

    def _write(
        self, pool: PoolDemand, kept: list[Place], created: list[tuple[Want, Landing]], draft: PlanDraft
    ) -> None:
        places = [(place.fault_domain, place.executor.slot) for place in kept]
        places += [(landing.fault_domain, want.slot) for want, landing in created]
        peers = peer_slots(places)
        chiplet = pool.chiplet
        for place, peer in zip(kept, peers, strict=False):
            said = place.kept
            # Mostly nothing about it has changed.
            if said is None or said.assignment.peer != peer or place.of is not chiplet:
                said = place.keep(pool, peer)
            draft.keep.append(said)
        for (want, landing), peer in zip(created, peers[len(kept) :], strict=True):
            draft.create.append(_assignment(pool, want, landing, peer))

    def _place(self, pool: PoolDemand, decision: Decision, draft: PlanDraft) -> list[tuple[Want, Landing]]:
        made: list[tuple[Want, Landing]] = []
        if hopeful(self._fleet, self._fitting, pool):
            made = self._search(pool, decision.wants, self._kept_of(pool, decision))
        left = len(decision.wants) - len(made)
        if left:
            draft.unplaced.append(self._explain(pool, left, self.taken))
        return made

    def _surge(
        self, pool: PoolDemand, decision: Decision, want: Want, draft: PlanDraft
    ) -> list[tuple[Want, Landing]]:
        others = [place for place in self._kept_of(pool, decision) if place.executor.name != want.replaces]
        made = self._search(pool, [want], others)
        if not made:
            message = "a new revision takes its place; there is no room for both"
            draft.drain.append(Ended(want.replaces, pool.key, EndReason.REVISION_REPLACED, message))
            self._kept[pool.key] = others
        return made

    def _search(
        self, pool: PoolDemand, wants: Sequence[Want], kept: Sequence[Place]
    ) -> list[tuple[Want, Landing]]:
        """Places for as many of the wants as have one."""
        spread = Spread.of(pool.spread, pool.replicas, self._settings.tolerated_loss)
        spread.count([place.fault_domain for place in kept])
        search = Search(self._fleet, self._fitting, pool, spread, admits(pool, self._fleet.label_keys))
        made: list[tuple[Want, Landing]] = []
        for want in wants:
            landing = search.place(frozenset((want.avoid,)) if want.avoid else frozenset())
            if landing is None:
                break
            self.taken.append(landing.node.node.name)
            made.append((want, landing))
        search.close()
        return made

    def _kept_of(self, pool: PoolDemand, decision: Decision) -> list[Place]:
        """Where the executors are that stay, worked out where somebody asks."""
        kept = self._kept.get(pool.key)
        if kept is None:
            kept = self._kept[pool.key] = [self._place_of(pool, executor) for executor in decision.keep]
        return kept

    def _place_of(self, pool: PoolDemand, executor: RunningExecutor) -> Place:
        node = self._nodes[executor.node]
        known = self._known.get(executor.name)
        if known is not None and known.executor is executor and known.node is node:
            return known
        devices = executor.held_devices
        parents, start = _parents(self._fleet.get(executor.node), devices)
        instance = devices[0] if pool.chiplet.shape is ChipletShape.MIG and devices else ""
        clique = clique_of(node) if parents else ""
        domain = fault_domain(node, self._settings, parents, instance, clique)
        made = self._known[executor.name] = Place(executor, node, domain, parents, start)
        return made

    def _judge(self, pool: PoolDemand, executor: RunningExecutor) -> Trouble | Flagged | None:
        if executor.phase is ExecutorPhase.FAILED:
            return Trouble(EndReason.FAILED, "it ended and will not come back", at_once=True)
        node = self._nodes.get(executor.node)
        if node is None:
            return Trouble(EndReason.NODE_GONE, f"node {executor.node} is gone", force=True)
        if node.taints:
            taint = next((taint for taint in evicting(node.taints) if not pool.tolerates(taint)), None)
            if taint is not None:
                return Trouble(EndReason.NODE_TAINTED, f"node {node.name} has taint {taint.key}:NoExecute")
        failed = self._failed.get(executor.node)
        if failed:
            trouble = self._failure(executor, node, failed)
            if trouble is not None:
                return trouble
        if executor.device_unhealthy:
            return Trouble(EndReason.DEVICE_UNHEALTHY, "the kubelet says that its device is unhealthy")
        given, planned = executor.devices, executor.planned_devices
        if given is not None and given != planned and set(given) != set(planned):
            broken = self._broken(pool, node, given)
            if broken is not None:
                return mismatch_verdict(executor, broken, self._settings.max_recreations)
        return None

    def _failure(self, executor: RunningExecutor, node: Node, failed: Mapping[str, str]) -> Trouble | None:
        whole = failed.get(node_domain(node.name))
        if whole is not None:
            if not node.ready:
                return Trouble(EndReason.NODE_LOST, f"node {node.name} is not ready", at_once=True)
            return Trouble(EndReason.DEVICE_UNHEALTHY, f"node {node.name}: {whole}")
        parents, _ = _parents(self._fleet.get(executor.node), executor.held_devices)
        domains = [gpu_domain(uuid) for uuid in parents]
        domains += [instance_domain(device) for device in executor.held_devices]
        for domain in domains:
            if domain in failed:
                return Trouble(EndReason.DEVICE_UNHEALTHY, f"{domain} on node {node.name}: {failed[domain]}")
        return None

    def _broken(self, pool: PoolDemand, node: Node, devices: Sequence[str]) -> str | None:
        """The hard constraint that GPUs chosen by the kubelet break."""
        demand = pool.chiplet
        if demand.shape is not ChipletShape.GPU or demand.count < 2 or node.topology is None:
            return None
        if demand.interconnect is not Interconnect.NVLINK_REQUIRED:
            return None
        fleet_node = self._fleet.get(node.name)
        if fleet_node is None:
            return None
        places = tuple(sorted(place for place, gpu in enumerate(node.topology.gpus) if gpu.uuid in devices))
        if len(places) == len(devices) and not fleet_node.kind.linked(places):
            return "they have no NVLink to each other"
        return None


def _parents(node: FleetNode | None, devices: Sequence[str]) -> tuple[tuple[str, ...], int | None]:
    """GPUs of devices, and where the first instance begins."""
    if node is None or not devices:
        return (), None
    parents: list[str] = []
    start: int | None = None
    for gpu in node.gpus:
        for device in devices:
            uuid, _, piece = device.partition(":")
            if gpu.uuid == uuid:
                parents.append(uuid)
                start = int(piece.rpartition(":")[2]) if piece else start
            for instance in gpu.instances:
                if instance.uuid == device:
                    parents.append(gpu.uuid)
                    start = instance.start
    return tuple(parents), start


def _assignment(pool: PoolDemand, want: Want, landing: Landing, peer: int | None) -> Assignment:
    return Assignment(
        pool=pool.key,
        slot=want.slot,
        node=landing.node.node.name,
        chiplet=landing.chiplet,
        fault_domain=landing.fault_domain,
        peer=peer,
        replaces=want.replaces,
        recreations=want.recreations,
        revision=pool.revision,
    )


def _held(pool: PoolDemand, place: Place) -> Chiplet:
    executor = place.executor
    mig = pool.chiplet.shape is ChipletShape.MIG
    return Chiplet(
        shape=pool.chiplet.shape,
        resource=executor.resource,
        count=executor.count,
        devices=executor.held_devices,
        profile=pool.chiplet.profile,
        gpu=place.parents[0] if mig and place.parents else "",
        start=place.start,
    )
