"""Everything placement decides from, at one moment.

Promise: frozen; a what-if is a plan of a changed copy (`dataclasses.replace`). Times are seconds on the same
clock as the `now` handed to the planner.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from superinfer_core.api.v1alpha1.labels import RACK_LABEL, ZONE_LABEL
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.node import Node


class ExecutorPhase(StrEnum):
    """How far an executor is."""

    PENDING = "Pending"
    """Created; not serving yet."""
    READY = "Ready"
    """Serving."""
    NOT_READY = "NotReady"
    """Has served, does not now; it may come back."""
    FAILED = "Failed"
    """Ended and will not come back (refused by the kubelet, evicted, crashed for good)."""


@dataclass(frozen=True, slots=True)
class RunningExecutor:
    """An executor pod that exists.

    Attributes:
        name: its pod.
        pool: namespace/name.
        slot, incarnation: its place in the pool, and how often that place was filled.
        revision: what its pod was made from.
        node: where it is pinned.
        phase: how far it is.
        terminating: being deleted; it still holds its device.
        planned_devices: device ids (GPU or MIG UUIDs) the plan that made it chose; empty where it chose none.
        devices: device ids it was really given, from pod-resources or its ResourceClaim; None not known yet.
        recreations: times this slot was made anew because the kubelet chose a device that cannot be used.
        resource, count: the extended resource it holds; None and 0 for shape CPU.
        requests: what else it holds of its node (cpu in millicores, memory in bytes).
        created_at: when it was made.
        device_unhealthy: its pod status says so (allocatedResourcesStatus).
    """

    name: str
    pool: str
    slot: int
    incarnation: int
    node: str
    revision: str = ""
    phase: ExecutorPhase = ExecutorPhase.PENDING
    terminating: bool = False
    planned_devices: tuple[str, ...] = ()
    devices: tuple[str, ...] | None = None
    recreations: int = 0
    resource: str | None = None
    count: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    created_at: float = 0.0
    device_unhealthy: bool = False

    @property
    def held_devices(self) -> tuple[str, ...]:
        """What it holds as far as is known: what it was given, else what was planned."""
        return self.planned_devices if self.devices is None else self.devices


@dataclass(frozen=True, slots=True)
class ForeignUse:
    """What all other pods of a node hold of one resource.

    Attributes:
        node: its name.
        resource: Kubernetes resource name.
        amount: cpu in millicores, memory in bytes, others counted.
        devices: device ids where known (pod-resources); fewer than `amount` is fine.
    """

    node: str
    resource: str
    amount: int
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What an administrator may set.

    Attributes:
        node_grace_s: a node that is not ready keeps its executors this long.
        hold_down_s: a device or node that recovered gets nothing new for this long; doubled each time it
            fails again within `flap_window_s`, up to `hold_down_max_s`.
        flap_window_s: see above.
        hold_down_max_s: see above.
        tolerated_loss: share of a pool's executors one fault domain may hold before spreading is violated;
            one executor per domain is always fine.
        max_recreations: for devices the kubelet chose against a hard constraint.
        rack_label, zone_label: node labels that name rack and zone.
    """

    node_grace_s: float = 30.0
    hold_down_s: float = 60.0
    flap_window_s: float = 1800.0
    hold_down_max_s: float = 1800.0
    tolerated_loss: float = 0.1
    max_recreations: int = 2
    rack_label: str = RACK_LABEL
    zone_label: str = ZONE_LABEL


@dataclass(frozen=True, slots=True)
class HoldDown:
    """Damping of one domain that failed.

    Attributes:
        failed_at: when its latest failure was first seen.
        strikes: failures that followed each other within the window.
        until: nothing new before; infinite while it is failed.
    """

    failed_at: float
    strikes: int
    until: float


@dataclass(frozen=True, slots=True)
class PlannerMemory:
    """What one plan hands to the next; losing it costs damping, never correctness.

    Attributes:
        holds: by domain ("node/<name>", "gpu/<uuid>", "instance/<uuid>").
    """

    holds: Mapping[str, HoldDown] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The world as it was gathered.

    Attributes:
        nodes, pools, executors, foreign: what there is.
        memory: what the plan before handed on.
        settings: durations and label names.
        typical: chiplets with their weights, which room is kept for; None: those of the pools.
        labels: further node labels that pools yet to come may ask about (an index then need not be rebuilt).
    """

    nodes: tuple[Node, ...]
    pools: tuple[PoolDemand, ...]
    executors: tuple[RunningExecutor, ...] = ()
    foreign: tuple[ForeignUse, ...] = ()
    memory: PlannerMemory = field(default_factory=PlannerMemory)
    settings: PlannerSettings = field(default_factory=PlannerSettings)
    typical: tuple[tuple[ChipletDemand, int], ...] | None = None
    labels: tuple[str, ...] = ()
