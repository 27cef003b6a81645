"""What a plan says: executors to create, keep, drain and delete, and why others could not be placed.

Promise: frozen; every refusal names a constraint and the nodes it holds on; every order is deterministic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.placement.snapshot import PlannerMemory


class Constraint(StrEnum):
    """Why a node cannot take an executor; also the `reason` told in conditions. Most basic first."""

    NO_NODES = "NoNodes"
    NODE_NOT_READY = "NodeNotReady"
    NODE_CORDONED = "NodeCordoned"
    SELECTOR_MISMATCH = "SelectorMismatch"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_HELD_DOWN = "NodeHeldDown"
    WRONG_PRODUCT = "WrongProduct"
    NO_SUCH_DEVICE = "NoSuchDevice"
    ISOLATION_UNAVAILABLE = "IsolationUnavailable"
    NOT_ENOUGH_MEMORY = "NotEnoughMemory"
    TOPOLOGY_UNKNOWN = "TopologyUnknown"
    NO_NVLINK_GROUP = "NoNVLinkGroup"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    MIG_LAYOUT = "MIGLayout"
    DEVICES_IN_USE = "DevicesInUse"
    NODE_RESOURCES = "NodeResources"
    DEVICE_MISMATCH = "DeviceMismatch"


class EndReason(StrEnum):
    """Why an executor ends."""

    POOL_GONE = "PoolGone"
    SCALED_DOWN = "ScaledDown"
    REVISION_REPLACED = "RevisionReplaced"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    NODE_LOST = "NodeLost"
    NODE_GONE = "NodeGone"
    NODE_TAINTED = "NodeTainted"
    FAILED = "Failed"
    DEVICE_MISMATCH = "DeviceMismatch"
    DUPLICATE = "Duplicate"
    REPACKED = "Repacked"


@dataclass(frozen=True, slots=True)
class Chiplet:
    """The hardware of one executor on its node.

    Attributes:
        shape: as asked.
        resource: extended resource of the pod, None for shape CPU.
        count: how many of it.
        devices: GPU UUIDs, or the MIG UUID; empty where only counts are known, or for an instance still to
            be made. With a device plugin this is what the plan expects, with DRA what the claim selects.
        profile: of shape MIG.
        gpu: UUID of the parent GPU of shape MIG, "" unknown.
        start: first memory slice of shape MIG, None unknown.
        exact: no other choice on the node would do (NVLink pairs and the like): a kubelet that chooses
            otherwise violates a hard constraint.
    """

    shape: ChipletShape
    resource: str | None = None
    count: int = 0
    devices: tuple[str, ...] = ()
    profile: str | None = None
    gpu: str = ""
    start: int | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """A slot of a pool on a chiplet.

    Attributes:
        pool: namespace/name.
        slot: place in the pool; its new incarnation is 1 + the highest seen.
        node: where.
        chiplet: on what.
        fault_domain: from outermost to innermost, each "level/name": zone, rack, node, clique, gpu, instance;
            unknown levels are left out.
        peer: slot of the executor its checkpoints should go to, None where there is no other.
        replaces: name of the running executor it takes over from, "" none.
        recreations: to be written down with it (see RunningExecutor.recreations).
        revision: what its pod is made from.
    """

    pool: str
    slot: int
    node: str
    chiplet: Chiplet
    fault_domain: tuple[str, ...]
    peer: int | None = None
    replaces: str = ""
    recreations: int = 0
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A running executor that stays, with what it holds as far as is known."""

    name: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Ended:
    """A running executor that ends.

    Attributes:
        name, pool: which.
        reason, message: why.
        force: its node is gone, so nobody will confirm the deletion.
    """

    name: str
    pool: str
    reason: EndReason
    message: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Nodes that cannot take an executor for the same reason, by name."""

    constraint: Constraint
    message: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Executors of a pool that have no place.

    Attributes:
        pool: namespace/name.
        count: how many.
        reason: the constraint nearest to being met, over all nodes.
        message: a sentence in the way of kube-scheduler: 0/3 nodes can take ...: 2 ..., 1 ....
        refusals: every node once, grouped by reason.
        layouts: MIG configurations (mig-parted's names) that would make room, by node.
    """

    pool: str
    count: int
    reason: Constraint
    message: str
    refusals: tuple[NodeRefusal, ...]
    layouts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayoutAdvice:
    """A MIG layout that would make room for executors without a place.

    Attributes:
        node: which.
        device: "all" GPUs of the node, or the UUID of one that is idle.
        config: name of mig-parted's configuration for the label nvidia.com/mig.config; None for one GPU.
        profiles: instances each of those GPUs should have; empty: MIG off.
        pools: whom it helps.
        message: how many of whom.
    """

    node: str
    device: str
    config: str | None
    profiles: tuple[str, ...]
    pools: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Flagged:
    """A running executor that is kept although a hard constraint does not hold: Placed=False."""

    name: str
    pool: str
    constraint: Constraint
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in deterministic order.

    Attributes:
        create: executors to make, on free chiplets.
        keep: executors that stay.
        drain: executors to end gracefully: no new work, running requests are handed over, then deleted.
        delete: executors with nothing left to save (failed, never started, node gone): deleted at once.
        unplaced: what has no place, with the reason node by node.
        flagged: kept against a hard constraint.
        advice: MIG layouts that would make room for what has no place.
        memory: to be handed to the next plan.
        wake_at: when time alone may change the plan (grace or hold-down ends); None never.
    """

    create: tuple[Assignment, ...] = ()
    keep: tuple[Kept, ...] = ()
    drain: tuple[Ended, ...] = ()
    delete: tuple[Ended, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    flagged: tuple[Flagged, ...] = ()
    advice: tuple[LayoutAdvice, ...] = ()
    memory: PlannerMemory = field(default_factory=PlannerMemory)
    wake_at: float | None = None

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.create or self.drain or self.delete)
