"""SLOContract: who may ask, which latencies are promised, what happens when they cannot be kept.

Every field of the spec is optional, because a child contract inherits what it leaves out. Defaults therefore
live in `superinfer_core.contract.inheritance`, not here: one in the schema would hide the parent's value.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from superinfer_core.api.v1alpha1.meta import (
    API_VERSION,
    ApiModel,
    ConditionStatus,
    DnsLabel,
    Generation,
    LocalRef,
    NamespacedRef,
    ObjectMeta,
    ShortText,
)
from superinfer_core.api.v1alpha1.schema_marks import TIMESTAMP, Rule, immutable, map_by, rules, validations
from superinfer_core.slo import MAX_TARGET_MS, AccessMode, Isolation, Metric, OnInfeasible, Tier

SLOCONTRACT_KIND: Final = "SLOContract"

TargetMs = Annotated[int, Field(strict=True, ge=1, le=MAX_TARGET_MS)]
Availability = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[1-9][0-9]?(\.[0-9]{1,4})?$", max_length=7)
]
WindowText = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[1-9][0-9]{0,5}(s|m|h|d)$", max_length=7)
]

RequestCount = Annotated[int, Field(ge=0, le=1_000_000_000_000_000)]

# The same rules as `superinfer_core.contract.spec_checks`, where the messages name both values.
_NO_POINTLESS_BOUND: Final = Rule(
    "self.all(loose, self.all(tight, loose.metric != tight.metric || tight.percentile <= loose.percentile"
    " || tight.targetMs >= loose.targetMs))",
    "an objective is looser than one of the same metric at a higher percentile, which includes it",
    "tighten or remove it",
)
_WINDOW_SECONDS: Final = (
    "int(self.substring(0, self.size() - 1)) * {'s': 1, 'm': 60, 'h': 3600, 'd': 86400}"
    "[self.substring(self.size() - 1)]"
)
_WINDOW_IN_RANGE: Final = Rule(
    f"{_WINDOW_SECONDS} >= 10 && {_WINDOW_SECONDS} <= 2592000",
    "must be between 10s and 30d",
    "write e.g. 10m, 1h or 7d",
)
_NOT_ITSELF: Final = tuple(
    Rule(
        f"!has(self.spec.{field}) || self.spec.{field}.name != self.metadata.name",
        f"spec.{field} refers to the contract itself",
        "name another, or remove it",
    )
    for field in ("parentRef", "fallbackRef")
)
_CONTRACT_RULES: Final = (
    Rule(
        "has(self.spec.serviceID) || (self.metadata.name.size() <= 63 && !self.metadata.name.contains('.'))",
        "spec.serviceID is needed where metadata.name cannot be one (dots, over 63 characters)",
        "add it",
    ),
    immutable(
        "(has(self.spec.serviceID) ? self.spec.serviceID : self.metadata.name) == "
        "(has(oldSelf.spec.serviceID) ? oldSelf.spec.serviceID : oldSelf.metadata.name)",
        "spec.serviceID",
    ),
    *_NOT_ITSELF,
)


class ObjectiveSpec(ApiModel):
    """One bound on one metric at one percentile."""

    metric: Metric = Field(
        description=(
            "TTFT: time to first token. ITL: mean time between tokens, (last - first) / (n - 1). "
            "E2E: time to the last token. All from the arrival of the request."
        )
    )
    percentile: Annotated[int, Field(strict=True, ge=1, le=99)] = Field(
        description="Share of the requests of a window, in percent, that must meet the target."
    )
    target_ms: TargetMs = Field(description="The target in whole milliseconds, at most one hour.")


class QuotaSpec(ApiModel):
    """How much may be asked for; what is unset is unlimited."""

    requests_per_second: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = Field(
        default=None, description="Requests per second, over all ingress replicas."
    )
    tokens_per_minute: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000_000)] | None = Field(
        default=None, description="Prompt and output tokens per minute, over all ingress replicas."
    )
    concurrency: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = Field(
        default=None, description="Requests in flight at the same time, over all ingress replicas."
    )


class ResourcesSpec(ApiModel):
    """What the pool must offer; more than it does makes the contract not Feasible."""

    min_chiplets: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = Field(
        default=None, description="Least number of chiplets (executors) the pool may grow to."
    )
    product: ShortText | None = Field(default=None, description="GPU product, e.g. NVIDIA-H200.")
    memory_mib: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] | None = Field(
        default=None, alias="memoryMiB", description="Least GPU memory of one chiplet, in MiB."
    )
    isolation: Isolation | None = Field(
        default=None,
        description=(
            "Least isolation. Shared: other work may run beside it. Instance: a MIG instance of its own. "
            "Device: a whole GPU of its own."
        ),
    )


class AccessSpec(ApiModel):
    """Whose API keys the contract serves."""

    mode: AccessMode | None = Field(
        default=None, description="OwnKeys: keys of apiKeySecretRef only. AnyKey: any key the ingress knows."
    )
    api_key_secret_ref: LocalRef | None = Field(
        default=None, description="Secret whose values are the API keys of this contract."
    )


class SLOContractSpec(ApiModel):
    """A promise about latency. What is left out is inherited from the parent, if there is one."""

    service_id: DnsLabel | None = Field(
        default=None,
        alias="serviceID",
        description=(
            "What the header x-slo-contract-id names; metadata.name where unset. Unique in the namespace. A "
            "contract whose serviceID is a dash-separated prefix of another's is its parent."
        ),
    )
    parent_ref: LocalRef | None = Field(
        default=None,
        description="Contract to inherit from; the one with the longest prefix of serviceID where unset.",
    )
    pool_ref: NamespacedRef | None = Field(
        default=None,
        description=("ChipletPool that serves the contract; one of another namespace must allow this one."),
    )
    tier: Tier | None = Field(
        default=None,
        description=(
            "Default rank, and a TTFT P99 of 30 (Gold), 100 (Silver) or 500 ms (Bronze) where no objective "
            "is set. Bronze where neither the contract nor a parent says."
        ),
    )
    priority: Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000)] | None = Field(
        default=None,
        description="Order inside a tier, higher first; 0 where unset. Negative work gives way when short.",
    )
    objectives: list[ObjectiveSpec] | None = Field(
        default=None,
        max_length=16,
        description="Latency bounds, one for each pair of metric and percentile.",
        json_schema_extra=map_by("metric", "percentile") | validations(_NO_POINTLESS_BOUND),
    )
    max_jitter_ms: TargetMs | None = Field(
        default=None,
        description="Greatest minus least gap between two tokens of one request, in milliseconds.",
    )
    availability: Availability | None = Field(
        default=None,
        description='Share of the requests within quota that are served, in percent, as text: "99.95".',
    )
    window: WindowText | None = Field(
        default=None,
        description="What percentiles and availability are taken over, e.g. 10m; 1h where unset.",
        json_schema_extra=validations(_WINDOW_IN_RANGE),
    )
    on_infeasible: OnInfeasible | None = Field(
        default=None,
        description=(
            "When a request cannot be served in time. Reject: refuse it at once (425). Degrade: serve it as "
            "best effort. Fallback: serve it under fallbackRef. Reject where unset."
        ),
    )
    fallback_ref: LocalRef | None = Field(
        default=None, description="Contract that takes over with onInfeasible: Fallback."
    )
    quota: QuotaSpec | None = Field(default=None, description="How much may be asked for.")
    resources: ResourcesSpec | None = Field(default=None, description="What the pool must offer.")
    access: AccessSpec | None = Field(default=None, description="Whose API keys the contract serves.")


class OriginStatus(ApiModel):
    """Where one effective field comes from."""

    field: ShortText = Field(description="Field of the spec.")
    contract: ShortText = Field(description="Contract that states it, or `default`.")


class EffectiveStatus(ApiModel):
    """The contract after inheritance: what requests are really held to."""

    parent: ShortText | None = Field(default=None, description="namespace/serviceID of the parent.")
    spec: SLOContractSpec = Field(description="The spec with everything inherited filled in.")
    origins: list[OriginStatus] | None = Field(
        default=None,
        max_length=64,
        description="Which contract states which field.",
        json_schema_extra=map_by("field"),
    )


class PromiseStatus(ApiModel):
    """One promise over the window that ended at the last update."""

    promise: ShortText = Field(
        description='What was promised, e.g. "TTFT P99 300 ms" or "availability 99.95".'
    )
    kept_percent: ShortText = Field(description="Share of the requests that kept it, in percent.")
    budget_left_percent: ShortText = Field(description="Share of the error budget that is left, in percent.")


class FulfilmentState(StrEnum):
    """Whether a contract is kept over its window."""

    KEPT = "Kept"
    BROKEN = "Broken"
    UNKNOWN = "Unknown"


class AttainmentStatus(ApiModel):
    """How the contract is doing; coarse on purpose, exact figures are metrics."""

    fulfilled: FulfilmentState = Field(
        description="Kept: every promise holds over the window. Unknown: nothing was asked for yet."
    )
    offered: RequestCount | None = Field(default=None, description="Requests within quota in the window.")
    admitted: RequestCount | None = Field(default=None, description="Requests accepted under the contract.")
    promises: list[PromiseStatus] | None = Field(
        default=None,
        max_length=32,
        description="Each objective, jitter and availability by itself.",
        json_schema_extra=map_by("promise"),
    )
    updated_at: ShortText | None = Field(
        default=None, description="When it was summed up.", json_schema_extra=TIMESTAMP
    )


class SLOContractStatus(ApiModel):
    """Written by the operator."""

    conditions: list[ConditionStatus] | None = Field(
        default=None,
        max_length=16,
        description="Accepted, ResolvedRefs, Feasible, and Ready as their summary.",
        json_schema_extra=map_by("type"),
    )
    observed_generation: Generation | None = Field(
        default=None, description="metadata.generation this status was computed from."
    )
    effective: EffectiveStatus | None = Field(default=None, description="The contract after inheritance.")
    attainment: AttainmentStatus | None = Field(default=None, description="How the contract is doing.")


class SLOContract(ApiModel):
    """A promise about the latency of LLM requests, and what happens when it cannot be kept."""

    model_config = rules(*_CONTRACT_RULES)

    api_version: Annotated[str, StringConstraints(pattern=r"^superinfer\.dev/v1alpha1$")] = API_VERSION
    kind: Annotated[str, StringConstraints(pattern=r"^SLOContract$")] = SLOCONTRACT_KIND
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: SLOContractSpec
    status: SLOContractStatus | None = None

    @property
    def name(self) -> str:
        """metadata.name, or the serviceID where a document names only that."""
        return self.metadata.name or self.spec.service_id or ""

    @property
    def service_id(self) -> str:
        """What x-slo-contract-id names."""
        return self.spec.service_id or self.metadata.name or ""
