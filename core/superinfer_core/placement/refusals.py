"""Why no node can take another executor of a pool: every node once, with the constraint it does not meet.

Promise: complete (each node of the fleet appears in exactly one refusal) and deterministic. The first
constraint in the order a person would check is named: the node, its labels, its hardware, what is free.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.fit import Fitting, free_bits
from superinfer_core.placement.fleet import Fleet, FleetNode, Group
from superinfer_core.placement.hardware import GpuMode
from superinfer_core.placement.misfit import Misfit
from superinfer_core.placement.outcome import Constraint, NodeRefusal, Unplaced
from superinfer_core.placement.search import admits, device_count, first_difference

_ORDER: Mapping[Constraint, int] = {constraint: place for place, constraint in enumerate(Constraint)}


Reason = tuple[Constraint, str]


class Explanation:
    """Why no node takes another executor of one pool; kept up to date node by node.

    Made anew where the pool or the fleet as a whole is another.
    """

    def __init__(self, fleet: Fleet, fitting: Fitting, pool: PoolDemand) -> None:
        self.pool = pool
        self._fleet, self._fitting = fleet, fitting
        self._names: dict[Reason, list[str]] = {}
        self._reason: dict[str, Reason] = {}
        self._told: dict[Reason, NodeRefusal] = {}
        judge = _Judge(fleet, fitting, pool)
        for crowd in fleet.by_group():
            common = judge.common(crowd.group, crowd.alike[0]) if crowd.alike and crowd.group else None
            if common is not None:
                reason = (common.constraint, common.message)
                self._names.setdefault(reason, []).extend(crowd.names)
                self._reason.update(dict.fromkeys(crowd.names, reason))
            for node in crowd.apart if common is not None else (*crowd.alike, *crowd.apart):
                refusal = judge.refusal(node)
                reason = (refusal.constraint, refusal.message)
                self._names.setdefault(reason, []).append(node.node.name)
                self._reason[node.node.name] = reason
        for names in self._names.values():
            names.sort()

    def update(self, names: Iterable[str]) -> None:
        """Look at these nodes again; some may be gone or new."""
        judge = _Judge(self._fleet, self._fitting, self.pool)
        for name in names:
            node = self._fleet.get(name)
            refusal = judge.refusal(node) if node is not None else None
            reason = (refusal.constraint, refusal.message) if refusal is not None else None
            before = self._reason.pop(name, None)
            if reason is not None:
                self._reason[name] = reason
            if reason == before:
                continue
            if before is not None:
                listed = self._names[before]
                del listed[bisect_left(listed, name)]
                self._told.pop(before, None)
                if not listed:
                    del self._names[before]
            if reason is not None:
                insort(self._names.setdefault(reason, []), name)
                self._told.pop(reason, None)

    def unplaced(self, count: int) -> Unplaced:
        """The explanation of `count` executors without a place."""
        total = len(self._reason)
        if not total:
            message = f"the cluster has no nodes for {count} executors of {self.pool.key}"
            return Unplaced(self.pool.key, count, Constraint.NO_NODES, message, ())
        order = sorted(self._names, key=lambda one: (-_ORDER[one[0]], -len(self._names[one]), one[1]))
        refusals = tuple(self._refusal(reason) for reason in order)
        told = ", ".join(f"{len(refusal.nodes)} {refusal.message}" for refusal in refusals[:6])
        if len(refusals) > 6:
            told += f", {sum(len(refusal.nodes) for refusal in refusals[6:])} for other reasons"
        wanted = "one more executor" if count == 1 else f"{count} more executors"
        message = f"0/{total} nodes can take {wanted}: {told}"
        return Unplaced(self.pool.key, count, refusals[0].constraint, message, refusals)

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
        self._hardware: dict[int, Misfit | None] = {}

    def refusal(self, node: FleetNode) -> Misfit:
        """What the node does not meet."""
        if node.standing is not None:
            return Misfit(node.standing.constraint, node.standing.message)
        if not self._admits(node.facts):
            return self._not_admitted(node)
        if self._pool.chiplet.shape is not ChipletShape.CPU:
            misfit = self._hardware_misfit(node)
            if misfit is not None:
                return misfit
            taken = self._devices_refusal(node)
            if taken is not None:
                return taken
        return self._resource_refusal(node)

    def common(self, group: Group, node: FleetNode) -> Misfit | None:
        """What all nodes of a group do not meet, as far as their devices are healthy; None if nothing."""
        if not self._admits(group.facts):
            return self._not_admitted(node)
        if self._pool.chiplet.shape is ChipletShape.CPU:
            return None
        misfit = self._hardware_misfit(node)
        if misfit is not None:
            return misfit
        choices = self._fitting.choices(self._pool.chiplet)
        if choices.of(group.kind, group.kind_number, group.states) is not None:
            return None
        return self._taken(node)

    def _not_admitted(self, node: FleetNode) -> Misfit:
        wanted = first_difference(node.facts, self._pool.node_selector, self._fleet.label_keys)
        if wanted is not None:
            return Misfit(Constraint.SELECTOR_MISMATCH, f"without label {wanted}")
        taint = next(taint for taint in node.facts.taints if not self._pool.tolerates(taint))
        value = f"={taint.value}" if taint.value else ""
        return Misfit(
            Constraint.TAINT_NOT_TOLERATED,
            f"with taint {taint.key}{value}:{taint.effect.value} not tolerated",
        )

    def _hardware_misfit(self, node: FleetNode) -> Misfit | None:
        """Why the hardware could not, even if it were idle."""
        if node.kind_number not in self._hardware:
            self._hardware[node.kind_number] = self._find_misfit(node)
        return self._hardware[node.kind_number]

    def _find_misfit(self, node: FleetNode) -> Misfit | None:
        demand = self._pool.chiplet
        if not node.kind.gpus:
            return Misfit(Constraint.NO_SUCH_DEVICE, "without GPUs")
        misfits = [self._fitting.misfit(kind, demand) for kind in node.kind.gpus]
        fitting = misfits.count(None)
        if not fitting:
            # The GPU that comes nearest speaks for the node.
            return max((m for m in misfits if m is not None), key=lambda m: (_ORDER[m.constraint], m.message))
        if demand.shape is ChipletShape.GPU and fitting < demand.count:
            return Misfit(Constraint.NO_SUCH_DEVICE, f"with {fitting} such GPUs ({demand.count} asked for)")
        idle = tuple(0 for _ in node.kind.gpus)
        if self._fitting.choose(node.kind, idle, demand) is None:
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
        return self._taken(node)

    def _taken(self, node: FleetNode) -> Misfit:
        demand = self._pool.chiplet
        if demand.shape is ChipletShape.GPU:
            return self._whole_taken(node, demand)
        dynamic = any(kind.mode is GpuMode.DYNAMIC for kind in node.kind.gpus)
        what = "free slices for" if dynamic else "free instance"
        return Misfit(Constraint.DEVICES_IN_USE, f"without {what} {demand.profile}")

    def _whole_taken(self, node: FleetNode, demand: ChipletDemand) -> Misfit:
        usable = [
            place
            for place, kind in enumerate(node.kind.gpus)
            if free_bits(node.kind, node.devices.states) >> place & 1
            and self._fitting.misfit(kind, demand) is None
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
