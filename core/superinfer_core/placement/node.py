"""A node as placement sees it: labels, taints, what is allocatable and, if known, its GPUs and their links.

Promise: frozen values, safe to share. A node is usable in two depths: with a `Topology` (devices, links and
health are known) and without (only the counts in `allocatable` and the labels are). Nothing here decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from superinfer_core.api.v1alpha1.nodetopology import HealthState, LinkType, RecoveryAction
from superinfer_core.placement.geometry import MigProfile

__all__ = [
    "HEALTHY",
    "Gpu",
    "Health",
    "HealthState",
    "Link",
    "LinkType",
    "MigInstance",
    "MigProfile",
    "Node",
    "RecoveryAction",
    "Taint",
    "TaintEffect",
    "Toleration",
    "Topology",
]


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    effect: TaintEffect
    value: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint executors tolerate; None means any, as in a pod."""

    key: str | None = None
    operator: str = "Equal"
    value: str | None = None
    effect: TaintEffect | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether it covers the taint."""
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key is None:
            return self.operator == "Exists"
        if self.key != taint.key:
            return False
        return self.operator == "Exists" or (self.value or "") == taint.value


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a GPU or of one instance.

    Attributes:
        state: Healthy and Degraded keep running executors; Degraded gets no new ones; Unhealthy loses them.
        reason: a word for people, e.g. Xid79.
        recovery_action: what is needed to recover.
    """

    state: HealthState = HealthState.HEALTHY
    reason: str = ""
    recovery_action: RecoveryAction = RecoveryAction.NONE


HEALTHY = Health()


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A GPU instance that exists, on memory slices `start` to `start + size - 1`."""

    uuid: str
    profile: str
    start: int
    size: int
    health: Health = HEALTHY


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        uuid, index: identity; links name the index.
        product: as GPU feature discovery writes it, e.g. NVIDIA-H200.
        memory_mib: total.
        pci_bus_id: e.g. 0000:1a:00.0, "" unknown.
        numa_node: None unknown.
        mig_enabled: only instances can be used then, never the whole GPU.
        nvswitch: linked to every other such GPU of the node at full bandwidth.
        clique: "<cluster uuid>.<clique id>" of a multi-node NVLink fabric, "" none.
        health: of the GPU as a whole.
        profiles: what it can be cut into; empty is looked up by product.
        instances: what it is cut into.
    """

    uuid: str
    index: int
    product: str
    memory_mib: int
    pci_bus_id: str = ""
    numa_node: int | None = None
    mig_enabled: bool = False
    nvswitch: bool = False
    clique: str = ""
    health: Health = HEALTHY
    profiles: tuple[MigProfile, ...] = ()
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """The best connection of GPUs `a` and `b` (indices); `count` is the number of NVLinks."""

    a: int
    b: int
    type: LinkType
    count: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """The GPUs of a node and how they are linked.

    Attributes:
        gpus: by index.
        links: pairs with a known connection; pairs not listed have no NVLink.
        dynamic_mig: instances can be made on demand where the allocator is DRA.
    """

    gpus: tuple[Gpu, ...]
    links: tuple[Link, ...] = ()
    dynamic_mig: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        name, uid: identity.
        labels: all of its labels.
        taints: all of its taints (those Kubernetes sets for unschedulable and not-ready may be left out).
        ready: the Ready condition is True.
        not_ready_since: when it ceased to be, seconds on the clock of `now`; None while ready.
        schedulable: not cordoned.
        allocatable: Kubernetes resource names to amounts: cpu in millicores, memory in bytes, others counted.
        topology: None where no NodeTopology is published: counts and labels decide then.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    not_ready_since: float | None = None
    schedulable: bool = True
    allocatable: Mapping[str, int] = field(default_factory=dict)
    topology: Topology | None = None
