"""What a pool asks of placement: how many executors, on which hardware, spread over what.

Promise: frozen values made from ChipletPools by whoever gathers; nothing here reads the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from superinfer_core.api.v1alpha1.chipletpool import Allocation, ChipletShape, FaultDomain, Interconnect
from superinfer_core.api.v1alpha1.labels import GPU_RESOURCE, mig_resource
from superinfer_core.placement.geometry import MEMORY_SLICES
from superinfer_core.placement.node import Taint, Toleration
from superinfer_core.slo import Isolation

DEFAULT_SPREAD = (FaultDomain.NODE, FaultDomain.GPU)
"""What replicas are spread over where a pool does not say."""


@dataclass(frozen=True, slots=True)
class ChipletDemand:
    """The hardware of one executor.

    Attributes:
        shape: MIG instance, whole GPUs or none.
        profile: of shape MIG.
        count: GPUs of shape GPU.
        interconnect: how those GPUs must be linked.
        memory_mib: GPU memory the executor needs in all (weights, KV cache, overhead); None not checked.
        product: GPU product it must be, None any.
        isolation: what must not be shared.
        named: the allocator needs the names of devices, not only how many there are (DRA); set by the pool.
    """

    shape: ChipletShape
    profile: str | None = None
    count: int = 1
    interconnect: Interconnect = Interconnect.ANY
    memory_mib: int | None = None
    product: str | None = None
    isolation: Isolation = Isolation.SHARED
    named: bool = False

    @property
    def rough_size(self) -> int:
        """How large it is beside others, whatever the product: about the slices of a GPU; 0 for shape CPU."""
        match self.shape:
            case ChipletShape.GPU:
                return MEMORY_SLICES * self.count
            case ChipletShape.MIG:
                return int((self.profile or "1")[0])
            case ChipletShape.CPU:
                return 0

    @property
    def resource(self) -> str | None:
        """The extended resource the pod asks for; None for shape CPU."""
        if self.shape is ChipletShape.CPU:
            return None
        return GPU_RESOURCE if self.shape is ChipletShape.GPU else mig_resource(self.profile or "")


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """One pool.

    Attributes:
        key: namespace/name.
        uid: last tie-break between pools, and changes when a pool is made anew.
        replicas: executors wanted.
        chiplet: hardware of each.
        revision: hash of what its pods are made from; executors of another one are replaced in turn.
        allocation: who picks the device.
        spread: fault domains, most important first.
        node_selector: labels a node must have.
        tolerations: taints executors tolerate.
        requests: what else a pod asks of its node (cpu in millicores, memory in bytes).
        priority: pools of higher priority are placed first.
    """

    key: str
    uid: str
    replicas: int
    chiplet: ChipletDemand
    revision: str = ""
    allocation: Allocation = Allocation.DEVICE_PLUGIN
    spread: tuple[FaultDomain, ...] = DEFAULT_SPREAD
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0

    def __post_init__(self) -> None:
        """Let the chiplet know its allocator."""
        named = self.allocation is Allocation.DRA
        if self.chiplet.named is not named:
            object.__setattr__(self, "chiplet", replace(self.chiplet, named=named))

    def tolerates(self, taint: Taint) -> bool:
        """Whether its executors may be on a node with that taint."""
        return any(toleration.tolerates(taint) for toleration in self.tolerations)
