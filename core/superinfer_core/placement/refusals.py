"""Why no node can take another executor of a pool: every node once, with the constraint it does not meet.

Promise: complete (each node of the fleet appears in exactly one refusal) and deterministic. The first
constraint in the order a person would check is named: the node, its labels, its hardware, what is free.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.fit import Fitting, free_bits
from superinfer_core.placement.fleet import Facts, Fleet, FleetNode, Group
from superinfer_core.placement.hardware import GpuMode, NodeKind
from superinfer_core.placement.misfit import Misfit
from superinfer_core.placement.outcome import Constraint, NodeRefusal, Unplaced
from superinfer_core.placement.search import admits, device_count, first_difference

_ORDER: Mapping[Constraint, int] = {constraint: place for place, constraint in enumerate(Constraint)}


Reason = tuple[Constraint, str]


class Explanation:
    """Why no node takes another executor of one pool; kept up to date node by node.

    It holds for every pool that asks for the same. Made anew where the fleet as a whole is another.
    """

    def __init__(self, fleet: Fleet, fitting: Fitting, pool: PoolDemand) -> None:
        self._fleet = fleet
        self._names: dict[Reason, list[str]] = {}
        self._reason: dict[str, Reason] = {}
        self._told: dict[Reason, NodeRefusal] = {}
        self._said: tuple[Constraint, str, tuple[NodeRefusal, ...]] | None = None
        self._judge = _Judge(fleet, fitting, pool)
        for group in fleet.groups.values():
            names = fleet.names_of(group)
            if not names:
                continue
            common = self._judge.common(group)
            if common is not None:
                self._names.setdefault(common, []).extend(names)
                self._reason.update(dict.fromkeys(names, common))
                continue
            for name in names:
                self._note(name)
        for name in fleet.apart:
            self._note(name)
        for listed in self._names.values():
            listed.sort()

    def _note(self, name: str) -> None:
        node = self._fleet.get(name)
        assert node is not None
        reason = self._judge.reason(node)
        self._names.setdefault(reason, []).append(name)
        self._reason[name] = reason

    def update(self, names: Iterable[str]) -> None:
        """Look at these nodes again; some may be gone or new."""
        for name in names:
            node = self._fleet.get(name)
            reason = self._judge.reason(node) if node is not None else None
            before = self._reason.get(name)
            if reason == before:
                continue
            self._said = None
            if before is not None:
                del self._reason[name]
                listed = self._names[before]
                del listed[bisect_left(listed, name)]
                self._told.pop(before, None)
                if not listed:
                    del self._names[before]
            if reason is not None:
                self._reason[name] = reason
                insort(self._names.setdefault(reason, []), name)
                self._told.pop(reason, None)

    def unplaced(self, pool: str, count: int, before: Unplaced | None = None) -> Unplaced:
        """The explanation of `count` executors of a pool without a place; `before` while it still holds."""
        total = len(self._reason)
        if not total:
            message = f"the cluster has no nodes for {count} executors of {pool}"
            return Unplaced(pool, count, Constraint.NO_NODES, message, ())
        if self._said is None:
            self._said = self._say()
        constraint, told, refusals = self._said
        if before is not None and before.count == count and before.refusals is refusals:
            return before
        wanted = "one more executor" if count == 1 else f"{count} more executors"
        return Unplaced(pool, count, constraint, f"0/{total} nodes can take {wanted}: {told}", refusals)

    def _say(self) -> tuple[Constraint, str, tuple[NodeRefusal, ...]]:
        order = sorted(self._names, key=lambda one: (-_ORDER[one[0]], -len(self._names[one]), one[1]))
        refusals = tuple([self._refusal(reason) for reason in order])
        told = ", ".join([f"{len(refusal.nodes)} {refusal.message}" for refusal in refusals[:6]])
        if len(refusals) > 6:
            told += f", {sum(len(refusal.nodes) for refusal in refusals[6:])} for other reasons"
        return refusals[0].constraint, told, refusals

    def _refusal(self, reason: Reason) -> NodeRefusal:
        told = self._told.get(reason)
        if told is None:
            told = self._told[reason] = NodeRefusal(*reason, tuple(self._names[reason]))
        return told


class _Judge:
    """Refusals of one pool, remembered by what nodes have in common."""

    def __init__(self, fleet: Fleet, fitting: Fitting, pool: PoolDemand) -> None:
        self._fleet, self._fitting, self._pool = fleet, fitting, pool
        self._admits = admits(pool, fleet.label_keys)
        self._choices = fitting.choices(pool.chiplet)
        self._hardware: dict[int, Misfit | None] = {}
        self._common: dict[tuple[int, int, tuple[int, ...]], Reason | None] = {}

    def reason(self, node: FleetNode) -> Reason:
        """What the node does not meet."""
        if node.standing is not None:
            return (node.standing.constraint, node.standing.message)
        if node.group is not None and not node.devices.unhealthy:
            common = self.common(node.group)
            if common is not None:
                return common
        refusal = self._refusal(node)
        return (refusal.constraint, refusal.message)

    def common(self, group: Group) -> Reason | None:
        """What all nodes of a group do not meet, as far as their devices are healthy; None if nothing."""
        key = (group.facts_number, group.kind_number, group.states)
        try:
            return self._common[key]
        except KeyError:
            found = self._common_refusal(group)
            reason = None if found is None else (found.constraint, found.message)
            self._common[key] = reason
            return reason

    def _refusal(self, node: FleetNode) -> Misfit:
        if not self._admits(node.facts):
            return self._not_admitted(node.facts)
        if self._pool.chiplet.shape is not ChipletShape.CPU:
            misfit = self._hardware_misfit(node.kind, node.kind_number)
            if misfit is not None:
                return misfit
            taken = self._devices_refusal(node)
            if taken is not None:
                return taken
        return self._resource_refusal(node)

    def _common_refusal(self, group: Group) -> Misfit | None:
        if not self._admits(group.facts):
            return self._not_admitted(group.facts)
        if self._pool.chiplet.shape is ChipletShape.CPU:
            return None
        misfit = self._hardware_misfit(group.kind, group.kind_number)
        if misfit is not None:
            return misfit
        if self._choices.of(group.kind, group.kind_number, group.states) is not None:
            return None
        return self._taken(group.kind, group.states)

    def _not_admitted(self, facts: Facts) -> Misfit:
        wanted = first_difference(facts, self._pool.node_selector, self._fleet.label_keys)
        if wanted is not None:
            return Misfit(Constraint.SELECTOR_MISMATCH, f"without label {wanted}")
        taint = next(taint for taint in facts.taints if not self._pool.tolerates(taint))
        value = f"={taint.value}" if taint.value else ""
        return Misfit(
            Constraint.TAINT_NOT_TOLERATED,
            f"with taint {taint.key}{value}:{taint.effect.value} not tolerated",
        )

    def _hardware_misfit(self, kind: NodeKind, number: int) -> Misfit | None:
        """Why the hardware could not, even if it were idle."""
        if number not in self._hardware:
            self._hardware[number] = self._find_misfit(kind)
        return self._hardware[number]

    def _find_misfit(self, node: NodeKind) -> Misfit | None:
        demand = self._pool.chiplet
        if not node.gpus:
            return Misfit(Constraint.NO_SUCH_DEVICE, "without GPUs")
        misfits = [self._fitting.misfit(kind, demand) for kind in node.gpus]
        fitting = misfits.count(None)
        if not fitting:
            # The GPU that comes nearest speaks for the node.
            return max((m for m in misfits if m is not None), key=lambda m: (_ORDER[m.constraint], m.message))
        if demand.shape is ChipletShape.GPU and fitting < demand.count:
            return Misfit(Constraint.NO_SUCH_DEVICE, f"with {fitting} such GPUs ({demand.count} asked for)")
        if self._fitting.choose(node, [0] * len(node.gpus), demand) is None:
            return Misfit(
                Constraint.NO_NVLINK_GROUP, f"without {demand.count} GPUs that all have NVLink to each other"
            )
        return None

    def _devices_refusal(self, node: FleetNode) -> Misfit | None:
        demand = self._pool.chiplet
        states = node.devices.states
        if self._fitting.choose(node.kind, states, demand) is not None:
            return None
        sick = node.devices.unhealthy
        if sick:
            healed = list(states)
            for place in sick:
                healed[place] = 0
            if self._fitting.choose(node.kind, healed, demand) is not None:
                reasons = ", ".join(sorted(set(sick.values())))
                return Misfit(Constraint.DEVICE_UNHEALTHY, f"with unhealthy devices ({reasons})")
        return self._taken(node.kind, states)

    def _taken(self, node: NodeKind, states: Sequence[int]) -> Misfit:
        demand = self._pool.chiplet
        if demand.shape is ChipletShape.GPU:
            return self._whole_taken(node, states, demand)
        dynamic = any(kind.mode is GpuMode.DYNAMIC for kind in node.gpus)
        what = "free slices for" if dynamic else "free instance"
        return Misfit(Constraint.DEVICES_IN_USE, f"without {what} {demand.profile}")

    def _whole_taken(self, node: NodeKind, states: Sequence[int], demand: ChipletDemand) -> Misfit:
        free = free_bits(node, states)
        usable = [
            place
            for place, kind in enumerate(node.gpus)
            if free >> place & 1 and self._fitting.misfit(kind, demand) is None
        ]
        if len(usable) >= demand.count and demand.interconnect is Interconnect.NVLINK_REQUIRED:
            return Misfit(
                Constraint.NO_NVLINK_GROUP,
                f"with {len(usable)} free GPUs but no {demand.count} of them linked by NVLink",
            )
        return Misfit(Constraint.DEVICES_IN_USE, f"with {len(usable)} free GPUs ({demand.count} asked for)")

    def _resource_refusal(self, node: FleetNode) -> Misfit:
        device, count = node.resource_of(self._pool.chiplet), device_count(self._pool)
        if device is not None and node.free.get(device, 0) < count:
            if device not in node.node.allocatable:
                return Misfit(Constraint.NO_SUCH_DEVICE, f"where no device plugin offers {device}")
            return Misfit(Constraint.DEVICES_IN_USE, f"with too little {device} ({count} asked for)")
        for resource, amount in sorted(self._pool.requests.items()):
            if node.free.get(resource, 0) < amount:
                told = _told(resource, amount)
                return Misfit(Constraint.NODE_RESOURCES, f"with too little {resource} ({told} asked for)")
        # Room was there when the pool was judged and is not offered: it was taken by a pool placed after it.
        return Misfit(Constraint.DEVICES_IN_USE, "whose devices went to other pools of this plan")


def _told(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount}m"
    return f"{amount // (1 << 20)} MiB" if resource == "memory" else str(amount)
