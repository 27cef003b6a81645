"""The planner's index: the world, kept by difference, and the plans made from it.

Promise: a plan of the index is what a plan of a whole snapshot would be as far as validity and explanations
go; pools nothing happened to are left out of it. One owner, one thread. Planning leaves the index as it was:
what a plan creates counts once it is applied as an executor.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, FaultDomain
from superinfer_core.placement.advice import advise
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.explaining import Explanations, asked_of_nodes
from superinfer_core.placement.fit import Fitting
from superinfer_core.placement.fleet import Fleet, Group
from superinfer_core.placement.lifecycle import Decision
from superinfer_core.placement.node import Gpu, Node
from superinfer_core.placement.outcome import LayoutAdvice, Plan, Unplaced
from superinfer_core.placement.pool_plan import Place, PlanDraft, PoolPlanner, pool_order
from superinfer_core.placement.search import admits
from superinfer_core.placement.snapshot import (
    ForeignUse,
    HoldDown,
    PlannerMemory,
    RunningExecutor,
    Snapshot,
)
from superinfer_core.placement.spread import LEVELS
from superinfer_core.placement.standing import (
    failing,
    gpu_domain,
    instance_domain,
    next_holds,
    node_domain,
)

_SPREAD_LEVELS = {level: LEVELS[level] for level in (FaultDomain.ZONE, FaultDomain.RACK, FaultDomain.CLIQUE)}
"""Levels the fleet has to know of its nodes."""

_DRIFT = 0.1
"""Share of what pools want that may change before room is kept for another mix."""


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two snapshots.

    Attributes:
        nodes, pools, executors: new or changed ones.
        foreign: by node, all of its foreign use anew.
        gone_nodes, gone_pools, gone_executors: names and keys of those that are no more.
    """

    nodes: tuple[Node, ...] = ()
    pools: tuple[PoolDemand, ...] = ()
    executors: tuple[RunningExecutor, ...] = ()
    foreign: Mapping[str, tuple[ForeignUse, ...]] = field(default_factory=dict)
    gone_nodes: tuple[str, ...] = ()
    gone_pools: tuple[str, ...] = ()
    gone_executors: tuple[str, ...] = ()


class PlacementIndex:
    """See the module."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.settings = snapshot.settings
        self._typical = snapshot.typical
        self._more_labels = frozenset(snapshot.labels)
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.pools = {pool.key: pool for pool in snapshot.pools}
        self.executors = {executor.name: executor for executor in snapshot.executors}
        self.of_pool: dict[str, dict[str, RunningExecutor]] = {}
        self.of_node: dict[str, dict[str, RunningExecutor]] = {}
        self._stale: set[str] = set()
        self._dirty: set[str] = set()
        for executor in snapshot.executors:
            self._list(executor)
        self.foreign: dict[str, tuple[ForeignUse, ...]] = {}
        for use in snapshot.foreign:
            self.foreign[use.node] = (*self.foreign.get(use.node, ()), use)
        self.holds: dict[str, HoldDown] = dict(snapshot.memory.holds)
        self.failed: dict[str, dict[str, str]] = {}
        self._waiting: dict[str, Unplaced] = {}
        self._dirty |= self.pools.keys()
        self._away: set[str] = {node.name for node in snapshot.nodes if not node.ready}
        self._held_on: dict[str, str] = dict(_domains_held(snapshot)) if self.holds else {}
        self._mix: Counter[ChipletDemand] = Counter()
        for chiplet, weight in snapshot.typical or ():
            self._mix[chiplet] += weight
        if snapshot.typical is None:
            for pool in snapshot.pools:
                self._mix[pool.chiplet] += pool.replicas
        self._moved = 0
        self.decided: frozenset[str] = frozenset()
        """Pools whose executors the last plan says everything of; of others it names those that get room."""
        self._places: dict[str, Place] = {}
        self._decisions: dict[str, Decision] = {}
        self._rebuild()

    def apply(self, change: Change) -> None:
        """Take in a difference."""
        for name in change.gone_executors:
            self._unlist(name)
        for executor in change.executors:
            self._unlist(executor.name)
            self._list(executor)
        for name in change.gone_nodes:
            self.nodes.pop(name, None)
            self._away.discard(name)
            self.fleet.drop(name)
            self._touch_node(name)
            self.failed.pop(name, None)
        for node in change.nodes:
            before = self.nodes.get(node.name)
            self.nodes[node.name] = node
            (self._away.discard if node.ready else self._away.add)(node.name)
            self._stale.add(node.name)
            if before is None or _judged_otherwise(before, node):
                self._touch_node(node.name)
        for name, uses in change.foreign.items():
            self.foreign[name] = uses
            self._stale.add(name)
        for key in change.gone_pools:
            self._want(self.pools.pop(key, None), None)
            self._dirty.add(key)
        for pool in change.pools:
            self._want(self.pools.get(pool.key), pool)
            self.pools[pool.key] = pool
            self._dirty.add(pool.key)
        if not all(self._known(pool) for pool in change.pools):
            self._rebuild()

    def _want(self, before: PoolDemand | None, after: PoolDemand | None) -> None:
        """Keep count of what is wanted, which room is kept for."""
        if self._typical is not None:
            return
        if before is not None and after is not None and before.chiplet == after.chiplet:
            self._mix[after.chiplet] += after.replicas - before.replicas
            self._moved += abs(after.replicas - before.replicas)
            return
        for pool, sign in ((before, -1), (after, 1)):
            if pool is not None:
                self._mix[pool.chiplet] += sign * pool.replicas
                self._moved += pool.replicas

    def plan(self, now: float) -> Plan:
        """The plan for what has changed since the last one, at first for everything."""
        if self._moved > _DRIFT * self._mix.total():
            self._moved = 0
            self._mix = +self._mix
            self.fitting.reweigh(self._mix)
        refreshed = self._refresh(now)
        # Whoever waits for room is tried again when a node that was looked at anew has some.
        dirty = set(self._dirty)
        groups = self._groups_of(refreshed)
        room: dict[Hashable, bool] = {}
        for key in self._waiting.keys() - dirty:
            if key not in self.pools or self._may_have_room(self.pools[key], groups, room):
                dirty.add(key)
        known = [self.pools[key] for key in dirty if key in self.pools]
        gone = sorted(key for key in dirty if key not in self.pools)
        draft = PlanDraft()
        planner = PoolPlanner(
            self.fleet,
            self.fitting,
            self.nodes,
            self.failed,
            self.settings,
            now,
            self._places,
            self._explain,
        )
        for key in gone:
            planner.end(key, tuple(self.of_pool.get(key, {}).values()), draft)
        for pool in sorted(known, key=pool_order):
            decision = None if pool.key in self._dirty else self._decisions.get(pool.key)
            if decision is not None and decision.surge is None:
                planner.retry(pool, decision)
            else:
                planner.decide(pool, _ordered(self.of_pool.get(pool.key, {}).values()), draft)
        planner.fill(draft)
        self._decisions.update(planner.decisions)
        self.decided = frozenset((*planner.decisions, *gone))
        for key in gone:
            self._decisions.pop(key, None)
        draft.unplaced += [
            self._explain(self.pools[key], one.count, planner.taken)
            for key, one in self._waiting.items()
            if key not in dirty
        ]
        self._explanations.end()
        self._waiting = {unplaced.pool: unplaced for unplaced in draft.unplaced}
        advice = tuple(advise(self.fleet, self.pools, draft.unplaced)) if draft.unplaced else ()
        # What is to be done may fail to happen: until it shows, the pool is planned again.
        self._dirty = {one.pool for one in draft.create}
        self._dirty |= {one.pool for one in (*draft.drain, *draft.delete)}
        self._stale.update(planner.taken)
        plan = draft.plan()
        if advice:
            plan = replace(plan, unplaced=_with_layouts(plan.unplaced, advice))
        memory = PlannerMemory(dict(self.holds))
        return replace(plan, advice=advice, memory=memory, wake_at=self._wake_at(now))

    def _wake_at(self, now: float) -> float | None:
        """When patience with a node or a hold-down ends."""
        moments = [hold.until for hold in self.holds.values() if now < hold.until < inf]
        for name in self._away:
            since = self.nodes[name].not_ready_since
            if since is not None and since + self.settings.node_grace_s > now:
                moments.append(since + self.settings.node_grace_s)
        return min(moments, default=None)

    def _groups_of(self, names: Iterable[str]) -> list[Group]:
        """The groups these nodes are in."""
        nodes = [self.fleet.get(name) for name in names]
        groups = {id(node.group): node.group for node in nodes if node is not None}
        return [group for group in groups.values() if group is not None]

    def _may_have_room(self, pool: PoolDemand, groups: Sequence[Group], known: dict[Hashable, bool]) -> bool:
        """Whether one of these groups could take an executor of a pool that found no place before."""
        if pool.chiplet.shape is ChipletShape.CPU:
            return True
        asked = asked_of_nodes(pool)
        if asked not in known:
            choices, judge = self.fitting.choices(pool.chiplet), admits(pool, self.fleet.label_keys)
            known[asked] = any(
                choices.of(group.kind, group.kind_number, group.states) is not None and judge(group.facts)
                for group in groups
            )
        return known[asked]

    def _explain(self, pool: PoolDemand, count: int, taken: Sequence[str]) -> Unplaced:
        """Why executors have no place: what was found before, looked at again where something changed."""
        return self._explanations.of(pool, count, taken, self._waiting.get(pool.key))

    def nodes_with_room(self, chiplet: ChipletDemand) -> int:
        """How many nodes could hold one more such chiplet after the last plan, whoever asks for it."""
        choices = self.fitting.choices(chiplet)
        return sum(
            group.alive
            for group in self.fleet.groups.values()
            if choices.of(group.kind, group.kind_number, group.states) is not None
        )

    def _list(self, executor: RunningExecutor) -> None:
        self.executors[executor.name] = executor
        self.of_pool.setdefault(executor.pool, {})[executor.name] = executor
        self.of_node.setdefault(executor.node, {})[executor.name] = executor
        self._dirty.add(executor.pool)
        self._stale.add(executor.node)

    def _unlist(self, name: str) -> None:
        executor = self.executors.pop(name, None)
        if executor is not None:
            self._places.pop(name, None)
            self.of_pool[executor.pool].pop(name, None)
            self.of_node[executor.node].pop(name, None)
            self._dirty.add(executor.pool)
            self._stale.add(executor.node)

    def _touch_node(self, name: str) -> None:
        self._stale.add(name)
        self._dirty |= {executor.pool for executor in self.of_node.get(name, {}).values()}

    def _touch_holders(self, name: str, domains: AbstractSet[str]) -> None:
        """Plan the pools anew whose executors are hit by, or freed from, a failure of these domains."""
        if node_domain(name) in domains:
            self._touch_node(name)
            return
        devices = {domain.partition("/")[2] for domain in domains}
        topology = self.nodes[name].topology
        for gpu in topology.gpus if topology is not None else ():
            if gpu.uuid in devices:
                devices.update(instance.uuid for instance in gpu.instances)
        for executor in self.of_node.get(name, {}).values():
            held = {device.partition(":")[0] for device in executor.held_devices}
            if held & devices or not held:
                self._dirty.add(executor.pool)

    def _rebuild(self) -> None:
        """Make the fleet anew: pools ask about labels it does not know."""
        self.fleet = Fleet(self.nodes.values(), self._labels(), self._domains(), self.settings)
        self._label_keys = frozenset(self.fleet.label_keys)
        self.fitting = Fitting(self._mix)
        self._explanations = Explanations(self.fleet, self.fitting)
        self._stale = set(self.nodes)

    def _labels(self) -> frozenset[str]:
        return self._more_labels | {key for pool in self.pools.values() for key in pool.node_selector}

    def _known(self, pool: PoolDemand) -> bool:
        """Whether the fleet knows all that the pool asks about nodes."""
        levels = {_SPREAD_LEVELS[level] for level in pool.spread if level in _SPREAD_LEVELS}
        return pool.node_selector.keys() <= self._label_keys and levels <= self.fleet.domains

    def _domains(self) -> frozenset[str]:
        levels = {level for pool in self.pools.values() for level in pool.spread}
        return frozenset(name for level, name in _SPREAD_LEVELS.items() if level in levels)

    def _refresh(self, now: float) -> list[str]:
        """Bring stale nodes up to date, those whose damping or patience has ended among them; which."""
        due = self._due(now)
        names = sorted((self._stale | due) & self.nodes.keys())
        for name in names:
            before = self.failed.pop(name, {})
            found = dict(failing(self.nodes[name], self.settings, now))
            if found:
                self.failed[name] = found
                self._held_on.update(dict.fromkeys(found, name))
            if before.keys() != found.keys():
                self._touch_holders(name, before.keys() ^ found.keys())
        if self.failed or self.holds:
            known = {domain for found in self.failed.values() for domain in found}
            self.holds = next_holds(self.holds, known, self.settings, now)
        for name in names:
            node = self.nodes[name]
            executors = _ordered(self.of_node.get(name, {}).values())
            self.fleet.renew(node, executors, self.foreign.get(name, ()), self.holds, now)
        self._explanations.begin(self._stale | due)
        self._stale.clear()
        return names

    def _due(self, now: float) -> set[str]:
        """Nodes that change by time alone: patience or a hold-down has ended."""
        ended = {
            domain for domain, hold in self.holds.items() if hold.until <= now and domain in self._held_on
        }
        return self._away | {self._held_on.pop(domain) for domain in ended}


def _ordered(executors: Iterable[RunningExecutor]) -> tuple[RunningExecutor, ...]:
    return tuple(sorted(executors, key=attrgetter("slot", "incarnation", "name")))


def _judged_otherwise(before: Node, after: Node) -> bool:
    """Whether executors on a node may be judged otherwise than before; failures are looked at elsewhere."""
    if before.taints != after.taints or before.labels != after.labels:
        return True
    old, new = before.topology, after.topology
    if old is new:
        return False
    if old is None or new is None or old.links != new.links:
        return True
    return [_devices(gpu) for gpu in old.gpus] != [_devices(gpu) for gpu in new.gpus]


def _devices(gpu: Gpu) -> tuple[str, ...]:
    return (gpu.uuid, *[instance.uuid for instance in gpu.instances])


def _domains_held(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Domains that were held down before, with the node each is on."""
    for node in snapshot.nodes:
        domains = [node_domain(node.name)]
        for gpu in node.topology.gpus if node.topology is not None else ():
            domains += [gpu_domain(gpu.uuid), *[instance_domain(one.uuid) for one in gpu.instances]]
        yield from ((domain, node.name) for domain in domains if domain in snapshot.memory.holds)


def _with_layouts(unplaced: Iterable[Unplaced], advice: Sequence[LayoutAdvice]) -> tuple[Unplaced, ...]:
    """Each with the configurations that would make room for it."""
    layouts: dict[str, dict[str, str]] = {}
    for one in advice:
        for pool in one.pools if one.config is not None else ():
            layouts.setdefault(pool, {})[one.node] = one.config or ""
    return tuple(
        [replace(one, layouts=layouts[one.pool]) if one.pool in layouts else one for one in unplaced]
    )
