"""ChipletPool: a model, an engine, the hardware shape one executor gets, and how many of them.

As in SLOContract everything is bounded and CRD-able. Defaults that the API server should write down are in
the schema here, because a pool inherits from nothing.
"""

import re
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from superinfer_core.api.v1alpha1.meta import (
    API_VERSION,
    ApiModel,
    DnsLabel,
    LocalRef,
    NamespacedRef,
    ObjectMeta,
)
from superinfer_core.api.v1alpha1.placement import Allocation, FaultDomain, PlacementSpec, TolerationSpec
from superinfer_core.api.v1alpha1.pod_template import PodTemplateMetadata, PodTemplateSpec
from superinfer_core.api.v1alpha1.pool_model import (
    MEMORY_RULES,
    EngineSpec,
    EnvVar,
    ModelMemorySpec,
    ModelSource,
    ModelSpec,
    check_memory,
)
from superinfer_core.api.v1alpha1.pool_status import ChipletPoolStatus, EngineType
from superinfer_core.api.v1alpha1.schema_marks import (
    DEFAULT_EMPTY,
    SET,
    Rule,
    each_once,
    immutable,
    rules,
    unchanged,
)
from superinfer_core.checkpoint.peers import PeerPolicy
from superinfer_core.slo import Isolation, Tier

CHIPLETPOOL_KIND: Final = "ChipletPool"

MAX_POOL_NAME: Final = 40
POOL_NAME: Final = "^[a-z]([a-z0-9-]*[a-z0-9])?$"
_MIG_NEEDS_PROFILE: Final = Rule(
    "self.shape != 'MIG' || has(self.profile)", "shape MIG needs a profile", "add profile, e.g. 3g.71gb"
)
_PROFILE_ONLY_FOR_MIG: Final = Rule(
    "self.shape == 'MIG' || !has(self.profile)",
    "a profile is only for shape MIG",
    "remove profile, or write shape: MIG",
)
_ONLY_GPUS_ARE_GROUPED: Final = Rule(
    "self.shape == 'GPU' || !has(self.count) || self.count == 1",
    "only whole GPUs can be grouped",
    "write shape: GPU, or remove count",
)
_ONLY_GPUS_ARE_LINKED: Final = Rule(
    "self.shape == 'GPU' || !has(self.interconnect) || self.interconnect == 'Any'",
    "only whole GPUs can be linked",
    "write shape: GPU, or remove interconnect (MIG has no NVLink)",
)
_BOUNDS_IN_ORDER: Final = Rule(
    "self.minReplicas <= self.maxReplicas", "minReplicas is above maxReplicas", "write at most maxReplicas"
)
_SOMEBODY_KEEPS_COPIES: Final = Rule(
    "self.peers != 'None' || self.replicas == 0",
    "peers None leaves nobody to keep copies",
    "write replicas: 0, or other peers",
)
_CPU_IS_SHARED: Final = Rule(
    "self.isolation == 'Shared' || self.chiplet.shape != 'CPU'",
    "isolation other than Shared is only for MIG and GPU chiplets",
    "write isolation: Shared",
)
_DEVICE_IS_A_WHOLE_GPU: Final = Rule(
    "self.isolation != 'Device' || self.chiplet.shape == 'GPU'",
    "isolation Device is only for whole GPUs",
    "write isolation: Instance",
)
_DRA_IS_FOR_DEVICES: Final = Rule(
    "self.placement.allocation != 'DRA' || self.chiplet.shape != 'CPU'",
    "allocation DRA is only for MIG and GPU chiplets",
    "write allocation: DevicePlugin",
)
_NAME_LEADS_OTHERS: Final = Rule(
    f"self.metadata.name.size() <= {MAX_POOL_NAME} && self.metadata.name.matches('{POOL_NAME}')",
    f"metadata.name must be at most {MAX_POOL_NAME} lower-case letters, digits and dashes, a letter first, "
    "because pods and Services are named after it",
    "choose a shorter or simpler name",
)

__all__ = [
    "CHIPLETPOOL_KIND",
    "Allocation",
    "AutoscalingSpec",
    "CheckpointSpec",
    "ChipletPool",
    "ChipletPoolSpec",
    "ChipletPoolStatus",
    "ChipletShape",
    "ChipletSpec",
    "EngineSpec",
    "EngineType",
    "EnvVar",
    "FaultDomain",
    "Interconnect",
    "ModelMemorySpec",
    "ModelSource",
    "ModelSpec",
    "PlacementSpec",
    "PodTemplateMetadata",
    "PodTemplateSpec",
    "TolerationSpec",
]


class ChipletShape(StrEnum):
    """What hardware one executor gets."""

    MIG = "MIG"
    GPU = "GPU"
    CPU = "CPU"


class Interconnect(StrEnum):
    """How the GPUs of one chiplet must be linked."""

    ANY = "Any"
    NVLINK_PREFERRED = "NVLinkPreferred"
    NVLINK_REQUIRED = "NVLinkRequired"


class ChipletSpec(ApiModel):
    """The hardware one executor gets."""

    model_config = rules(
        _MIG_NEEDS_PROFILE,
        _PROFILE_ONLY_FOR_MIG,
        _ONLY_GPUS_ARE_GROUPED,
        _ONLY_GPUS_ARE_LINKED,
        immutable("self.shape == oldSelf.shape", "chiplet.shape"),
        unchanged("profile", "chiplet.profile"),
        unchanged("count", "chiplet.count", absent="1"),
    )

    shape: ChipletShape = Field(
        description="MIG: one GPU instance. GPU: whole GPUs. CPU: none, for trials and stubs."
    )
    profile: (
        Annotated[
            str, StringConstraints(strict=True, pattern=r"^[1-7]g\.[1-9][0-9]{0,2}gb(\+me)?$", max_length=16)
        ]
        | None
    ) = Field(default=None, description="MIG profile, e.g. 3g.71gb; only with shape MIG.")
    count: Annotated[int, Field(strict=True, ge=1, le=72)] | None = Field(
        default=None, description="Whole GPUs of one executor (its tensor parallel size); 1 where unset."
    )
    interconnect: Interconnect | None = Field(
        default=None, description="How those GPUs must be linked; Any where unset."
    )

    @model_validator(mode="after")
    def _shape_fits(self) -> Self:
        if self.shape is ChipletShape.MIG and self.profile is None:
            raise _MIG_NEEDS_PROFILE.broken()
        if self.shape is not ChipletShape.MIG and self.profile is not None:
            raise _PROFILE_ONLY_FOR_MIG.broken()
        if self.shape is not ChipletShape.GPU and (self.count or 1) > 1:
            raise _ONLY_GPUS_ARE_GROUPED.broken()
        if self.shape is not ChipletShape.GPU and self.interconnect not in (None, Interconnect.ANY):
            raise _ONLY_GPUS_ARE_LINKED.broken()
        return self


class AutoscalingSpec(ApiModel):
    """Bounds for whoever scales the pool."""

    model_config = rules(_BOUNDS_IN_ORDER)

    min_replicas: Annotated[int, Field(strict=True, ge=0, le=10_000)] = Field(
        default=1, description="Fewest executors."
    )
    max_replicas: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(description="Most executors.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise _BOUNDS_IN_ORDER.broken()
        return self


class CheckpointSpec(ApiModel):
    """How running requests are kept safe against the loss of an executor."""

    model_config = rules(_SOMEBODY_KEEPS_COPIES)

    interval_ms: Annotated[int, Field(strict=True, ge=1, le=60_000)] = Field(
        default=50, description="How often new KV blocks are sent to the peer."
    )
    replicas: Annotated[int, Field(strict=True, ge=0, le=3)] = Field(
        default=1, description="Copies on peers."
    )
    budget_mbps: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = Field(
        default=400, alias="budgetMBps", description="Bandwidth for copies, in megabytes per second."
    )
    memory_mib: Annotated[int, Field(strict=True, ge=1, le=16_777_216)] = Field(
        default=4096, alias="memoryMiB", description="Host memory of one executor for checkpoints, in MiB."
    )
    tiers: Annotated[list[Tier], AfterValidator(each_once)] | None = Field(
        default=None,
        max_length=3,
        description="Tiers whose requests are copied; all where unset.",
        json_schema_extra=SET,
    )
    peers: PeerPolicy = Field(default=PeerPolicy.OTHER_NODE, description="Where copies go.")
    retain_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] = Field(
        default=0, description="How long KV is kept after its request ended; 0 erases it at once."
    )

    @model_validator(mode="after")
    def _somebody_keeps_copies(self) -> Self:
        if self.peers is PeerPolicy.NONE and self.replicas > 0:
            raise _SOMEBODY_KEEPS_COPIES.broken()
        return self


class ChipletPoolSpec(ApiModel):
    """A model on a number of equal executors."""

    model_config = rules(_CPU_IS_SHARED, _DEVICE_IS_A_WHOLE_GPU, _DRA_IS_FOR_DEVICES, *MEMORY_RULES)

    model: ModelSpec = Field(description="Which model is served.")
    engine: EngineSpec = Field(
        default_factory=EngineSpec, description="What runs the model.", json_schema_extra=DEFAULT_EMPTY
    )
    chiplet: ChipletSpec = Field(description="The hardware one executor gets.")
    replicas: Annotated[int, Field(strict=True, ge=0, le=10_000)] = Field(
        default=1, description="Executors wanted; written by autoscalers through the scale subresource."
    )
    autoscaling: AutoscalingSpec | None = Field(
        default=None, description="Bounds of replicas: what is asked for beyond them is told, not done."
    )
    isolation: Isolation = Field(
        default=Isolation.SHARED, description="What contracts may count on: Shared, Instance or Device."
    )
    profile_ref: LocalRef | None = Field(
        default=None, description="ConfigMap with the measured profile that predictions start from."
    )
    policy_ref: LocalRef | None = Field(
        default=None, description="ConfigMap with the scheduling policy and urgency profile."
    )
    default_contract_ref: NamespacedRef | None = Field(
        default=None, description="Contract of requests that name none."
    )
    allowed_namespaces: Annotated[list[DnsLabel], AfterValidator(each_once)] | None = Field(
        default=None,
        max_length=256,
        description="Further namespaces whose contracts may use the pool.",
        json_schema_extra=SET,
    )
    placement: PlacementSpec = Field(
        default_factory=PlacementSpec,
        description="Where executors may run.",
        json_schema_extra=DEFAULT_EMPTY,
    )
    checkpoint: CheckpointSpec | None = Field(
        default=None, description="Keeping running requests safe; off where unset."
    )
    drain_seconds: Annotated[int, Field(strict=True, ge=1, le=3600)] = Field(
        default=60,
        description=(
            "How long an executor that has to go may take to hand over or finish its running requests."
        ),
    )
    pod_template: PodTemplateSpec | None = Field(
        default=None,
        description=(
            "What the executor pods get beyond what is generated: volumes, resources, pull secrets. The "
            "container of the engine is `executor`, the other one `sidecar`."
        ),
    )

    @model_validator(mode="after")
    def _hardware_can_offer_it(self) -> Self:
        shape = self.chiplet.shape
        if shape is ChipletShape.CPU and self.isolation is not Isolation.SHARED:
            raise _CPU_IS_SHARED.broken()
        if shape is not ChipletShape.GPU and self.isolation is Isolation.DEVICE:
            raise _DEVICE_IS_A_WHOLE_GPU.broken()
        if shape is ChipletShape.CPU and self.placement.allocation is Allocation.DRA:
            raise _DRA_IS_FOR_DEVICES.broken()
        return self

    @model_validator(mode="after")
    def _memory_can_be_told(self) -> Self:
        if self.model.memory is not None:
            check_memory(self.model.memory, self.engine, on_gpu=self.chiplet.shape is not ChipletShape.CPU)
        return self


class ChipletPool(ApiModel):
    """A model, an engine, a hardware shape, and how many executors of it."""

    model_config = rules(_NAME_LEADS_OTHERS)

    api_version: Annotated[str, StringConstraints(pattern=r"^superinfer\.dev/v1alpha1$")] = API_VERSION
    kind: Annotated[str, StringConstraints(pattern=r"^ChipletPool$")] = CHIPLETPOOL_KIND
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: ChipletPoolSpec
    status: ChipletPoolStatus | None = None

    @model_validator(mode="after")
    def _name_leads_others(self) -> Self:
        name = self.metadata.name
        if name is not None and (len(name) > MAX_POOL_NAME or re.search(POOL_NAME, name) is None):
            raise _NAME_LEADS_OTHERS.broken()
        return self
