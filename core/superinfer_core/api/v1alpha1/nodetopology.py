"""NodeTopology: the GPUs of one node, their MIG instances, links, health and who uses them.

Published by the node agent under the node's own name, one cluster-scoped object per node, and read by
placement. There is no spec: nothing here is asked for, everything is found.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from superinfer_core.api.v1alpha1.meta import (
    API_VERSION,
    ApiModel,
    ConditionStatus,
    DnsLabel,
    DnsName,
    ObjectMeta,
    ShortText,
)
from superinfer_core.api.v1alpha1.schema_marks import ATOMIC, TIMESTAMP, map_by

NODETOPOLOGY_KIND: Final = "NodeTopology"

MAX_GPUS: Final = 64
MAX_LINKS: Final = MAX_GPUS * (MAX_GPUS - 1) // 2
MAX_ALLOCATIONS: Final = 1024

MemoryMiB = Annotated[int, Field(ge=0, le=1_000_000_000)]
SmallCount = Annotated[int, Field(ge=0, le=65_536)]
Slices = Annotated[int, Field(ge=0, le=64)]
ProfileName = Annotated[str, StringConstraints(min_length=1, max_length=32)]


class TopologySource(StrEnum):
    """Where the facts come from."""

    NVML = "NVML"
    MOCK = "Mock"


class HealthState(StrEnum):
    """Health of a device."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


class RecoveryAction(StrEnum):
    """What the driver says is needed (NVML field 230); it decides how far a fault reaches."""

    NONE = "None"
    GPU_RESET = "GPUReset"
    NODE_REBOOT = "NodeReboot"
    DRAIN_P2P = "DrainP2P"
    DRAIN_AND_RESET = "DrainAndReset"
    RECOVER_IMEX_DOMAIN = "RecoverIMEXDomain"
    BUS_RESET = "BusReset"
    SYSTEM_REBOOT = "SystemReboot"


class LinkType(StrEnum):
    """How two GPUs are connected, best first (as `nvidia-smi topo -m`)."""

    NVSWITCH = "NVSwitch"
    NVLINK = "NVLink"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"


class NodeConditionType(StrEnum):
    """What a NodeTopology's condition is about."""

    READY = "Ready"


class NodeReason(StrEnum):
    """Why a NodeTopology's condition is what it is."""

    READY = "Ready"
    NO_DRIVER = "NoDriver"
    NO_GPU = "NoGPU"
    UNHEALTHY_GPU = "UnhealthyGPU"
    POD_RESOURCES_UNREACHABLE = "PodResourcesUnreachable"
    READ_FAILED = "ReadFailed"


class DeviceHealth(ApiModel):
    """How a GPU or MIG instance is."""

    state: HealthState = Field(description="Healthy, Degraded, Unhealthy or Unknown.")
    reason: ShortText | None = Field(default=None, description="Why, in one CamelCase word.")
    xid: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        default=None, description="The Xid error the driver reported last, where one counts."
    )
    recovery_action: RecoveryAction | None = Field(
        default=None, description="What brings the GPU back, as the driver says."
    )
    since: ShortText | None = Field(
        default=None, description="Since when (RFC 3339).", json_schema_extra=TIMESTAMP
    )


class FabricStatus(ApiModel):
    """The multi-node NVLink fabric a GPU belongs to."""

    cluster_uuid: ShortText = Field(alias="clusterUUID", description="Which fabric.")
    clique_id: Annotated[int, Field(ge=0, le=4_294_967_295)] = Field(
        alias="cliqueID", description="Which clique in it; GPUs of one clique reach each other."
    )


class MigProfileStatus(ApiModel):
    """One MIG profile a GPU offers, and where its instances can start."""

    name: ProfileName = Field(description="Name of the profile, e.g. 3g.71gb.")
    profile_id: SmallCount = Field(alias="profileID", description="Number the driver gives the profile.")
    memory_slices: Slices = Field(description="Memory slices an instance takes, of 8.")
    compute_slices: Slices = Field(description="Compute slices an instance takes, of 7.")
    starts: list[Slices] | None = Field(
        default=None,
        max_length=16,
        description="Memory slices at which an instance can start.",
        json_schema_extra=ATOMIC,
    )
    multiprocessors: SmallCount | None = Field(default=None, description="Multiprocessors of an instance.")
    memory_mib: MemoryMiB | None = Field(
        default=None, alias="memoryMiB", description="Memory of an instance, in MiB."
    )


class MigInstanceStatus(ApiModel):
    """One MIG instance that exists."""

    uuid: ShortText = Field(description="UUID of the MIG device, MIG-...")
    profile: ProfileName = Field(description="Name of its profile.")
    gi_id: SmallCount = Field(alias="giID", description="Number of the GPU instance.")
    start: Slices = Field(description="First memory slice it takes.")
    size: Slices = Field(description="Memory slices it takes.")
    health: DeviceHealth | None = Field(default=None, description="How it is; as its GPU where unset.")


class GpuStatus(ApiModel):
    """One GPU of the node."""

    uuid: ShortText = Field(description="UUID of the GPU, GPU-...")
    index: Annotated[int, Field(ge=0, le=1023)] = Field(description="Number of the GPU on the node.")
    product: ShortText = Field(description="Product name, as in the label nvidia.com/gpu.product.")
    memory_mib: MemoryMiB = Field(alias="memoryMiB", description="Memory in MiB.")
    pci_bus_id: ShortText | None = Field(default=None, alias="pciBusID", description="PCI address.")
    numa_node: Annotated[int, Field(ge=-1, le=1023)] | None = Field(
        default=None, description="NUMA node it is attached to; -1 where there is only one."
    )
    mig_enabled: bool = Field(default=False, description="Whether the GPU is in MIG mode.")
    fabric: FabricStatus | None = Field(default=None, description="Multi-node NVLink fabric, if it has one.")
    nvlink_switch: bool = Field(default=False, description="Whether its NVLinks go to a switch.")
    health: DeviceHealth = Field(description="How it is.")
    profiles: list[MigProfileStatus] | None = Field(
        default=None,
        max_length=32,
        description="MIG profiles it offers.",
        json_schema_extra=map_by("name"),
    )
    instances: list[MigInstanceStatus] | None = Field(
        default=None,
        max_length=16,
        description="MIG instances it has.",
        json_schema_extra=map_by("uuid"),
    )


class LinkStatus(ApiModel):
    """How two GPUs of the node reach each other; each pair once, the lower UUID first."""

    a: ShortText = Field(description="UUID of one GPU.")
    b: ShortText = Field(description="UUID of the other.")
    type: LinkType = Field(description="Nearest way between them.")
    count: Annotated[int, Field(ge=0, le=64)] | None = Field(
        default=None, description="NVLinks between them, where that is the way."
    )


class AllocationStatus(ApiModel):
    """Devices the kubelet has given to a container."""

    namespace: DnsLabel = Field(description="Namespace of the pod.")
    pod: DnsName = Field(description="Name of the pod.")
    container: DnsLabel = Field(description="Name of the container.")
    resource: ShortText = Field(description="Extended resource the devices were asked for as.")
    device_ids: list[ShortText] | None = Field(
        default=None,
        alias="deviceIDs",
        max_length=72,
        description="UUIDs of the devices.",
        json_schema_extra=ATOMIC,
    )


class NodeTopologyStatus(ApiModel):
    """Written by the node agent."""

    conditions: list[ConditionStatus] | None = Field(
        default=None,
        max_length=16,
        description="Ready: the facts below are complete and current.",
        json_schema_extra=map_by("type"),
    )
    source: TopologySource | None = Field(
        default=None, description="NVML; or Mock: described in a file, no such hardware is there."
    )
    driver_version: ShortText | None = Field(default=None, description="Version of the GPU driver.")
    product: ShortText | None = Field(default=None, description="Product of the first GPU, for listings.")
    gpu_count: SmallCount | None = Field(default=None, description="Number of GPUs.")
    healthy_gpu_count: SmallCount | None = Field(default=None, description="Number of GPUs that are Healthy.")
    instance_count: SmallCount | None = Field(default=None, description="Number of MIG instances.")
    gpus: list[GpuStatus] | None = Field(
        default=None,
        max_length=MAX_GPUS,
        description="The GPUs of the node.",
        json_schema_extra=map_by("uuid"),
    )
    links: list[LinkStatus] | None = Field(
        default=None,
        max_length=MAX_LINKS,
        description="How the GPUs reach each other, one entry per pair.",
        json_schema_extra=map_by("a", "b"),
    )
    allocations: list[AllocationStatus] | None = Field(
        default=None,
        max_length=MAX_ALLOCATIONS,
        description="Who holds which devices, as the kubelet says.",
        json_schema_extra=map_by("namespace", "pod", "container", "resource"),
    )
    observed_at: ShortText | None = Field(
        default=None,
        description="When anything above last changed (RFC 3339).",
        json_schema_extra=TIMESTAMP,
    )


class NodeTopology(ApiModel):
    """The GPUs of one node, as its node agent found them."""

    api_version: Annotated[str, StringConstraints(pattern=r"^superinfer\.dev/v1alpha1$")] = API_VERSION
    kind: Annotated[str, StringConstraints(pattern=r"^NodeTopology$")] = NODETOPOLOGY_KIND
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    status: NodeTopologyStatus | None = None

    @property
    def node(self) -> str:
        """The node it is about."""
        return self.metadata.name or ""
