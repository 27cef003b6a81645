"""Finding chiplets for executors of one pool, one after the other.

Promise: every executor gets the place that violates spreading least (in the pool's order of levels), then
costs the typical mix least, then fits most tightly, then is first by name: independent of history. Groups of
equal nodes are judged once; what a search skipped is put back when it ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from superinfer_core.api.v1alpha1.chipletpool import Allocation, ChipletShape
from superinfer_core.api.v1alpha1.labels import GPU_RESOURCE
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.fit import Choice, Fitting
from superinfer_core.placement.fleet import Facts, Fleet, FleetNode, Group
from superinfer_core.placement.landing import Landing, land
from superinfer_core.placement.spread import Spread

Priority = tuple[tuple[int, ...], tuple[int, ...], int]
"""Violation by level, cost, number of the node: less is better."""

_CPU = Choice((0,), (), 0, 0, -1, 0)


@dataclass(slots=True, eq=False)
class _Candidate:
    """A group, or one node of it that already holds its share of the pool."""

    group: Group | None
    node: FleetNode | None
    choice: Choice


def hopeful(fleet: Fleet, fitting: Fitting, pool: PoolDemand) -> bool:
    """Whether any node has devices left for one more executor of a pool."""
    judge = admits(pool, fleet.label_keys)
    if pool.chiplet.shape is ChipletShape.CPU:
        return any(judge(group.facts) for group in fleet.groups.values())
    choices = fitting.choices(pool.chiplet)
    return any(
        choices.of(group.kind, group.kind_number, group.states) is not None and judge(group.facts)
        for group in fleet.groups.values()
    )


class Search:
    """One pool's search over the fleet. Close it when done.

    Args:
        fleet: searched and changed.
        fitting: remembers what fits.
        pool: whose executors are placed.
        spread: executors of the pool that have a place; changed as more get one.
        admits: whether the pool's selector and tolerations admit nodes with these facts.
    """

    def __init__(
        self,
        fleet: Fleet,
        fitting: Fitting,
        pool: PoolDemand,
        spread: Spread,
        admits: Callable[[Facts], bool],
    ) -> None:
        self._fleet, self._fitting, self._pool, self._spread = fleet, fitting, pool, spread
        self._admits = admits
        self._requests = tuple(sorted(pool.requests.items()))
        self._device_count = device_count(pool)
        self._resource = pool.chiplet.resource or ""
        self._mig = pool.chiplet.shape is ChipletShape.MIG
        # Nodes that hold their share are looked at only once nothing else is without a violation.
        self._crowded: list[_Candidate] = []
        self._crowded_count = False
        self._cpu = pool.chiplet.shape is ChipletShape.CPU
        self._over_nodes = "node" in spread.levels
        self._outer = tuple(level for level in spread.levels if level not in ("node", "gpu"))
        self._unviolated = (0,) * sum(level != "gpu" for level in spread.levels)
        self._aside: list[tuple[Group, int]] = []
        # The node that took the last one, off its list: often it is the best one for the next, too.
        self._hand: FleetNode | None = None
        self._heap: list[tuple[Priority, int, _Candidate]] = []
        self._serial = 0
        self._choices = fitting.choices(pool.chiplet)
        self._listed: set[int] = set()
        for group in list(fleet.groups.values()):
            self._consider(group, push=False)
        heapify(self._heap)

    def place(self, avoid: frozenset[str] = frozenset()) -> Landing | None:
        """Place one more executor; None if nothing is left that would do.

        Args:
            avoid: nodes to be used only where there is no other.
        """
        found = self._once_more(avoid) or self._place_anywhere(avoid)
        return self.place() if found is None and avoid else found

    def _place_anywhere(self, avoid: frozenset[str]) -> Landing | None:
        passed: list[tuple[Priority, int, _Candidate]] = []
        found: Landing | None = None
        while self._heap or self._crowded:
            if not self._heap:
                self._count_crowded()
                continue
            entry = heappop(self._heap)
            if self._crowded and any(entry[0][0]):
                heappush(self._heap, entry)
                self._count_crowded()
                continue
            candidate = entry[2]
            node = self._first_of(candidate)
            if node is None:
                if candidate.node is None:
                    self._listed.discard(id(candidate.group))
                continue
            priority = self._priority(candidate, node)
            if priority > entry[0]:
                heappush(self._heap, (priority, entry[1], candidate))
                continue
            if node.node.name in avoid:
                if candidate.group is not None:
                    self._set_aside(candidate.group)
                    self._single(node, candidate.choice, passed)
                    heappush(self._heap, (priority, entry[1], candidate))
                else:
                    passed.append(entry)
                continue
            found = self._take(candidate, node)
            break
        for entry in passed:
            heappush(self._heap, entry)
        return found

    def close(self) -> None:
        """Put back what was skipped."""
        self._put_down()
        for group, number in self._aside:
            heappush(group.heap, number)
        self._aside.clear()
        self._heap.clear()

    def _consider(self, group: Group, *, push: bool = True) -> None:
        if id(group) in self._listed or not self._admits(group.facts):
            return
        if self._cpu:
            # Without devices the load of a node decides, which its group does not know.
            for number in set(group.heap):
                node = self._fleet.nodes[number]
                if node is not None and node.group is group:
                    self._enter(_Candidate(group, node, _CPU), push=push)
            return
        choice = self._choices.of(group.kind, group.kind_number, group.states)
        if choice is not None:
            self._enter(_Candidate(group, None, choice), push=push)

    def _enter(self, candidate: _Candidate, *, push: bool = True) -> None:
        node = self._first_of(candidate)
        if node is None:
            return
        if candidate.node is None:
            self._listed.add(id(candidate.group))
        self._serial += 1
        entry = (self._priority(candidate, node), self._serial, candidate)
        if push:
            heappush(self._heap, entry)
        else:
            self._heap.append(entry)

    def _first_of(self, candidate: _Candidate) -> FleetNode | None:
        """The first node of a candidate that can take one now."""
        if candidate.node is not None:
            node = candidate.node
            return node if node.group is candidate.group and self._has_room(node) else None
        group = candidate.group
        assert group is not None
        heap = group.heap
        while heap:
            node_or_none = self._fleet.nodes[heap[0]]
            if node_or_none is None or node_or_none.group is not group:
                heappop(heap)
                continue
            if not self._has_room(node_or_none):
                self._set_aside(group)
                continue
            if self._over_nodes and self._spread.excess(node_or_none.domain):
                self._set_aside(group)
                crowded = _Candidate(group, node_or_none, candidate.choice)
                if self._crowded_count:
                    self._enter(crowded)
                else:
                    self._crowded.append(crowded)
                continue
            return node_or_none
        return None

    def _count_crowded(self) -> None:
        """From now on nodes that hold their share compete, too."""
        self._crowded_count = True
        waiting, self._crowded = self._crowded, []
        for candidate in waiting:
            self._enter(candidate)

    def _single(self, node: FleetNode, choice: Choice, into: list[tuple[Priority, int, _Candidate]]) -> None:
        self._serial += 1
        candidate = _Candidate(node.group, node, choice)
        into.append((self._priority(candidate, node), self._serial, candidate))

    def _set_aside(self, group: Group) -> None:
        self._aside.append((group, heappop(group.heap)))

    def _has_room(self, node: FleetNode) -> bool:
        free = node.free
        if self._device_count:
            resource = GPU_RESOURCE if self._mig and node.single else self._resource
            if free.get(resource, 0) < self._device_count:
                return False
        return not self._requests or all(
            free.get(resource, 0) >= amount for resource, amount in self._requests
        )

    def _priority(self, candidate: _Candidate, node: FleetNode) -> Priority:
        if not self._outer and candidate.node is None and not self._cpu:
            return (self._unviolated, candidate.choice.cost, node.number)
        cost = candidate.choice.cost
        if self._cpu:
            cost = (len(node.kind.gpus) > 0, node.load)
        return (self._violated(node, alone=candidate.node is not None), cost, node.number)

    def _violated(self, node: FleetNode, *, alone: bool = False) -> tuple[int, ...]:
        """By how much one more would violate spreading, level by level; a group's nodes have no crowd."""
        spread = self._spread
        violated = []
        for level in spread.levels:
            if level == "node":
                violated.append(spread.excess(node.domain) if alone else 0)
            elif level != "gpu":
                name = getattr(node.facts, level)
                violated.append(spread.excess(f"{level}/{name}") if name else 0)
        return tuple(violated)

    def _take(self, candidate: _Candidate, node: FleetNode) -> Landing:
        before = candidate.group
        if self._cpu:
            landing = self._land(node, candidate.choice)
            self._enter(candidate)
            return landing
        self._fleet.take_out(node)
        landing = self._land(node, candidate.choice)
        if candidate.node is None and before is not None:
            self._listed.discard(id(before))
            if before.alive:
                self._enter(candidate)
        self._hand = node
        return landing

    def _once_more(self, avoid: frozenset[str]) -> Landing | None:
        """Take one more from the node at hand if it is still the best; put it down if it is not."""
        node = self._hand
        if node is None:
            return None
        crowded = self._over_nodes and self._spread.excess(node.domain)
        if not crowded and node.node.name not in avoid and self._has_room(node):
            choice = self._choices.of(node.kind, node.kind_number, node.devices.key(node.kind))
            if choice is not None:
                violated = self._violated(node) if self._outer else self._unviolated
                waits = self._crowded and any(violated)
                priority = (violated, choice.cost, node.number)
                if not waits and (not self._heap or priority < self._heap[0][0]):
                    return self._land(node, choice)
        self._put_down()
        return None

    def _put_down(self) -> None:
        """List the node at hand by what is taken of it now."""
        node, self._hand = self._hand, None
        if node is None:
            return
        self._fleet.put_back(node)
        if node.group is not None:
            self._consider(node.group)

    def _land(self, node: FleetNode, choice: Choice) -> Landing:
        landing = land(node, self._pool, choice, self._fitting, self._spread)
        free = node.free
        for resource, amount in self._requests:
            free[resource] = free.get(resource, 0) - amount
        if self._device_count:
            device = GPU_RESOURCE if self._mig and node.single else self._resource
            free[device] = free.get(device, 0) - self._device_count
        node.load += 1
        self._spread.place(node.domain, landing.fault_domain, len(node.base_domain))
        return landing


def device_count(pool: PoolDemand) -> int:
    """How many of its extended resource one pod asks for: none where a ResourceClaim names its devices."""
    plugin = pool.allocation is Allocation.DEVICE_PLUGIN and pool.chiplet.shape is not ChipletShape.CPU
    return pool.chiplet.count if plugin else 0


def admits(pool: PoolDemand, label_keys: tuple[str, ...]) -> Callable[[Facts], bool]:
    """Whether facts pass the selector and the tolerations of a pool, remembered."""
    wanted = tuple((label_keys.index(key), value) for key, value in sorted(pool.node_selector.items()))
    known: dict[int, bool] = {}

    def judge(facts: Facts) -> bool:
        found = known.get(id(facts))
        if found is None:
            found = all(facts.labels[place] == value for place, value in wanted) and all(
                pool.tolerates(taint) for taint in facts.taints
            )
            known[id(facts)] = found
        return found

    return judge


def first_difference(facts: Facts, selector: Mapping[str, str], label_keys: tuple[str, ...]) -> str | None:
    """The selector term facts do not meet, for people."""
    for key, value in sorted(selector.items()):
        found = facts.labels[label_keys.index(key)]
        if found != value:
            return f"{key}={value} (it has {found!r})" if found is not None else f"{key}={value} (not set)"
    return None
