"""ChipletPool: a model, an engine, the hardware shape one executor gets, and how many of them.

As in SLOContract everything is bounded and CRD-able. Defaults that the API server should write down are in
the schema here, because a pool inherits from nothing.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from superinfer_core.api.v1alpha1.meta import (
    API_VERSION,
    ApiModel,
    ConditionStatus,
    DnsLabel,
    LocalRef,
    LongText,
    NamespacedRef,
    ObjectMeta,
    ShortText,
)
from superinfer_core.contract.effective import Isolation
from superinfer_core.slo import Tier

CHIPLETPOOL_KIND: Final = "ChipletPool"

_SET: Final[dict[str, Any]] = {"x-kubernetes-list-type": "set"}
_ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}


def _map_by(key: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def _rules(*rules: tuple[str, str]) -> ConfigDict:
    """The rules of a model's validator as the API server checks them (CEL)."""
    validations: list[JsonValue] = [{"rule": rule, "message": message} for rule, message in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": validations})


class EngineType(StrEnum):
    """What runs the model."""

    VLLM = "VLLM"
    STUB = "Stub"


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


class Allocation(StrEnum):
    """Who picks the device."""

    DEVICE_PLUGIN = "DevicePlugin"
    DRA = "DRA"


class FaultDomain(StrEnum):
    """What replicas are spread over."""

    GPU = "GPU"
    CLIQUE = "Clique"
    NODE = "Node"
    RACK = "Rack"
    ZONE = "Zone"


class CheckpointPeers(StrEnum):
    """Where the copies of a request's KV go."""

    NONE = "None"
    ANY = "Any"
    OTHER_GPU = "OtherGPU"
    OTHER_NODE = "OtherNode"
    OTHER_ZONE = "OtherZone"


class ModelSource(ApiModel):
    """Where the weights are."""

    path: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=4096)] = Field(
        description="Directory inside the executor's container, e.g. a mounted volume."
    )


class ModelSpec(ApiModel):
    """Which model is served, under which name."""

    name: ShortText = Field(description="What clients write as `model`.")
    source: ModelSource | None = Field(default=None, description="Where the weights are.")


class EnvVar(ApiModel):
    """One environment variable of the engine."""

    name: Annotated[
        str, StringConstraints(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=253)
    ] = Field(description="Name of the variable.")
    value: LongText = Field(default="", description="Its value.")


class EngineSpec(ApiModel):
    """What runs the model, with its limits."""

    type: EngineType = Field(
        default=EngineType.VLLM, description="VLLM; or Stub: no model behind it, for tests and benchmarks."
    )
    image: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1024)] | None = Field(
        default=None, description="Container image of the executor; the chart's default where unset."
    )
    max_model_len: Annotated[int, Field(strict=True, ge=16, le=16_777_216)] | None = Field(
        default=None, description="Longest prompt plus output in tokens; the model's own where unset."
    )
    max_num_seqs: Annotated[int, Field(strict=True, ge=1, le=4096)] | None = Field(
        default=None, description="Requests in one batch; the engine's default where unset."
    )
    args: list[LongText] | None = Field(
        default=None, max_length=128, description="Further engine arguments.", json_schema_extra=_ATOMIC
    )
    env: list[EnvVar] | None = Field(
        default=None,
        max_length=128,
        description="Environment of the engine.",
        json_schema_extra=_map_by("name"),
    )


class ChipletSpec(ApiModel):
    """The hardware one executor gets."""

    model_config = _rules(
        ("self.shape != 'MIG' || has(self.profile)", "shape MIG needs a profile"),
        ("self.shape == 'MIG' || !has(self.profile)", "a profile is only for shape MIG"),
        ("self.shape == 'GPU' || !has(self.count) || self.count == 1", "only whole GPUs can be grouped"),
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
            raise _rule("shape MIG needs a profile", "add profile, e.g. 3g.71gb")
        if self.shape is not ChipletShape.MIG and self.profile is not None:
            raise _rule("a profile is only for shape MIG", "remove profile, or write shape: MIG")
        if self.shape is not ChipletShape.GPU and (self.count or 1) > 1:
            raise _rule("only whole GPUs can be grouped", "write shape: GPU, or remove count")
        return self


class AutoscalingSpec(ApiModel):
    """Bounds for whoever scales the pool."""

    model_config = _rules(("self.minReplicas <= self.maxReplicas", "minReplicas is above maxReplicas"))

    min_replicas: Annotated[int, Field(strict=True, ge=0, le=10_000)] = Field(
        default=1, description="Fewest executors."
    )
    max_replicas: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(description="Most executors.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise _rule("minReplicas is above maxReplicas", "write minReplicas at most maxReplicas")
        return self


class TolerationSpec(ApiModel):
    """A taint executors tolerate, as in a pod."""

    key: ShortText | None = Field(default=None, description="Taint key; all keys where unset.")
    operator: Annotated[str, StringConstraints(pattern=r"^(Exists|Equal)$", max_length=6)] | None = Field(
        default=None, description="Exists or Equal; Equal where unset."
    )
    value: Annotated[str, StringConstraints(strict=True, max_length=63)] | None = Field(
        default=None, description="Taint value, with Equal."
    )
    effect: (
        Annotated[str, StringConstraints(pattern=r"^(NoSchedule|PreferNoSchedule|NoExecute)$", max_length=16)]
        | None
    ) = Field(default=None, description="Taint effect; all effects where unset.")
    toleration_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] | None = Field(
        default=None, description="How long a NoExecute taint is tolerated."
    )


class PlacementSpec(ApiModel):
    """Where executors may run."""

    allocation: Allocation = Field(
        default=Allocation.DEVICE_PLUGIN,
        description="DevicePlugin: the kubelet picks the device. DRA: a ResourceClaim names it.",
    )
    spread: list[FaultDomain] | None = Field(
        default=None,
        max_length=5,
        description="Fault domains replicas are spread over, most important first.",
        json_schema_extra=_SET,
    )
    node_selector: dict[ShortText, Annotated[str, StringConstraints(strict=True, max_length=63)]] | None = (
        Field(default=None, max_length=64, description="Labels a node must have.")
    )
    tolerations: list[TolerationSpec] | None = Field(
        default=None, max_length=32, description="Taints executors tolerate.", json_schema_extra=_ATOMIC
    )


class CheckpointSpec(ApiModel):
    """How running requests are kept safe against the loss of an executor."""

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
    tiers: list[Tier] | None = Field(
        default=None,
        max_length=3,
        description="Tiers whose requests are copied; all where unset.",
        json_schema_extra=_SET,
    )
    peers: CheckpointPeers = Field(default=CheckpointPeers.OTHER_NODE, description="Where copies go.")
    retain_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] = Field(
        default=0, description="How long KV is kept after its request ended; 0 erases it at once."
    )


class ChipletPoolSpec(ApiModel):
    """A model on a number of equal executors."""

    model: ModelSpec = Field(description="Which model is served.")
    engine: EngineSpec = Field(default_factory=EngineSpec, description="What runs the model.")
    chiplet: ChipletSpec = Field(description="The hardware one executor gets.")
    replicas: Annotated[int, Field(strict=True, ge=0, le=10_000)] = Field(
        default=1, description="Executors wanted; written by autoscalers through the scale subresource."
    )
    autoscaling: AutoscalingSpec | None = Field(default=None, description="Bounds for autoscalers.")
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
    allowed_namespaces: list[DnsLabel] | None = Field(
        default=None,
        max_length=256,
        description="Further namespaces whose contracts may use the pool.",
        json_schema_extra=_SET,
    )
    placement: PlacementSpec = Field(default_factory=PlacementSpec, description="Where executors may run.")
    checkpoint: CheckpointSpec | None = Field(
        default=None, description="Keeping running requests safe; off where unset."
    )


class ChipletPoolStatus(ApiModel):
    """Written by the operator."""

    conditions: list[ConditionStatus] | None = Field(
        default=None, max_length=16, json_schema_extra=_map_by("type")
    )
    observed_generation: int | None = Field(default=None, ge=0)
    replicas: int | None = Field(default=None, ge=0, description="Executors that exist.")
    ready_replicas: int | None = Field(default=None, ge=0, description="Executors that serve.")
    selector: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        default=None, description="Label selector of the executors, for the scale subresource."
    )
    engine_type: EngineType | None = Field(
        default=None, description="Stub where no model is behind the pool."
    )


class ChipletPool(ApiModel):
    """A model, an engine, a hardware shape, and how many executors of it."""

    api_version: Annotated[str, StringConstraints(pattern=r"^superinfer\.dev/v1alpha1$")] = API_VERSION
    kind: Annotated[str, StringConstraints(pattern=r"^ChipletPool$")] = CHIPLETPOOL_KIND
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: ChipletPoolSpec
    status: ChipletPoolStatus | None = None


def _rule(message: str, fix: str) -> PydanticCustomError:
    return PydanticCustomError("rule", "{message}", {"message": message, "fix": fix})
