"""Inheritance field by field: a contract's own fields over its parent's, each with where it was stated.

A spec is flattened into paths (`maxJitterMs`, `quota.concurrency`, `objectives[TTFT P99]`), so that merging,
comparing with a parent's bounds and explaining all work on the same small mapping. Pure; what it returns is
not changed afterwards.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.api.v1alpha1.slocontract import SLOContract, SLOContractSpec
from superinfer_core.contract.effective import EffectiveContract, Quota, Resources
from superinfer_core.contract.problems import FieldProblem
from superinfer_core.contract.spec_checks import window_seconds
from superinfer_core.slo import AccessMode, Metric, Objective, OnInfeasible, Tier

DEFAULT_ORIGIN: Final = "default"
DEFAULT_TIER: Final = Tier.BRONZE
DEFAULT_WINDOW: Final = "1h"

_OBJECTIVES: Final = "objectives["


@dataclass(frozen=True, slots=True)
class StoredContract:
    """A contract as it is kept somewhere: a custom resource, a file, or what was posted.

    Attributes:
        namespace, name: identity of the object.
        spec: None where it could not be read; then `invalid` says why.
        created: RFC 3339 UTC, for the rule that the older keeps what it has.
        uid: settles equal creation times.
        generation: metadata.generation.
        invalid: what is wrong with the document.
    """

    namespace: str
    name: str
    spec: SLOContractSpec | None
    created: str = ""
    uid: str = ""
    generation: int = 0
    invalid: tuple[FieldProblem, ...] = ()

    @classmethod
    def of(
        cls, contract: SLOContract, *, namespace: str = "default", created: str = "", uid: str = ""
    ) -> "StoredContract":
        """From a parsed contract; the arguments stand in for metadata a document does not have."""
        meta = contract.metadata
        return cls(
            namespace=meta.namespace or namespace,
            name=contract.name,
            spec=contract.spec,
            created=meta.creation_timestamp or created,
            uid=meta.uid or uid,
            generation=meta.generation or 0,
        )

    @property
    def object_key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def service_id(self) -> str:
        """What requests name."""
        return (self.spec.service_id if self.spec is not None else None) or self.name

    @property
    def service_key(self) -> str:
        """namespace/serviceID."""
        return f"{self.namespace}/{self.service_id}"

    @property
    def age_key(self) -> tuple[str, str, str, str]:
        """Sorts the oldest first; total."""
        # Without the Z, a time with fractions of a second sorts after the same time without.
        return (self.created.removesuffix("Z"), self.uid, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Stated:
    """A value, and the serviceID key of the contract that states it."""

    value: Any
    origin: str


Fields = Mapping[str, Stated]


def own_fields(spec: SLOContractSpec, origin: str) -> dict[str, Stated]:
    """What a spec itself states, by path."""
    return {path: Stated(value, origin) for path, value in _own(spec) if value is not None}


def inherit(parent: Fields, own: Fields) -> dict[str, Stated]:
    """The child's fields over the parent's."""
    return {**parent, **own}


def objective_path(metric: Metric, percentile: float) -> str:
    """The path of an objective: the list is a map by metric and percentile."""
    return f"{_OBJECTIVES}{metric.value} P{percentile:g}]"


def objectives_of(fields: Fields) -> list[tuple[str, Objective, str]]:
    """(path, objective, origin) of every objective, sorted by metric and percentile."""
    found = [(path, s.value, s.origin) for path, s in fields.items() if path.startswith(_OBJECTIVES)]
    return sorted(found, key=lambda item: (item[1].metric.value, item[1].percentile))


def with_defaults(fields: Fields) -> dict[str, Stated]:
    """Everything nobody stated, filled in: what requests are really held to."""
    complete = dict(fields)

    def default(path: str, value: Any, origin: str = DEFAULT_ORIGIN) -> None:
        complete.setdefault(path, Stated(value, origin))

    default("tier", DEFAULT_TIER)
    default("priority", 0)
    default("window", DEFAULT_WINDOW)
    default("onInfeasible", OnInfeasible.REJECT)
    default("access.mode", AccessMode.OWN_KEYS)
    if not objectives_of(complete):
        tier = complete["tier"].value
        preset = Objective(Metric.TTFT, 99, tier.preset_ttft_ms)
        default(objective_path(Metric.TTFT, 99), preset, f"{DEFAULT_ORIGIN} of tier {tier.value}")
    return complete


def effective_contract(
    *,
    namespace: str,
    service_id: str,
    fields: Fields,
    parent: str | None,
    pool: str | None,
    fallback: str | None,
) -> EffectiveContract:
    """The contract decisions take, from fields with their defaults and from resolved names."""

    def value(path: str) -> Any:
        stated = fields.get(path)
        return None if stated is None else stated.value

    availability = value("availability")
    return EffectiveContract(
        namespace=namespace,
        service_id=service_id,
        tier=value("tier"),
        priority=value("priority"),
        objectives=tuple(objective for _, objective, _ in objectives_of(fields)),
        pool=pool,
        max_jitter_ms=value("maxJitterMs"),
        availability=None if availability is None else float(availability),
        window_s=float(window_seconds(value("window"))),
        on_infeasible=value("onInfeasible"),
        fallback=fallback,
        parent=parent,
        quota=Quota(
            requests_per_second=value("quota.requestsPerSecond"),
            tokens_per_minute=value("quota.tokensPerMinute"),
            concurrency=value("quota.concurrency"),
        ),
        access=value("access.mode"),
        api_key_secret=value("access.apiKeySecretRef"),
        resources=Resources(
            min_chiplets=value("resources.minChiplets"),
            product=value("resources.product"),
            memory_mib=value("resources.memoryMiB"),
            isolation=value("resources.isolation"),
        ),
    )


def _own(spec: SLOContractSpec) -> Iterator[tuple[str, Any]]:
    if spec.pool_ref is not None:
        yield "poolRef", spec.pool_ref
    yield "tier", spec.tier
    yield "priority", spec.priority
    for o in spec.objectives or []:
        yield objective_path(o.metric, o.percentile), Objective(o.metric, o.percentile, o.target_ms)
    yield "maxJitterMs", spec.max_jitter_ms
    yield "availability", spec.availability
    yield "window", spec.window
    yield "onInfeasible", spec.on_infeasible
    yield "fallbackRef", spec.fallback_ref and spec.fallback_ref.name
    if (quota := spec.quota) is not None:
        yield "quota.requestsPerSecond", quota.requests_per_second
        yield "quota.tokensPerMinute", quota.tokens_per_minute
        yield "quota.concurrency", quota.concurrency
    if (resources := spec.resources) is not None:
        yield "resources.minChiplets", resources.min_chiplets
        yield "resources.product", resources.product
        yield "resources.memoryMiB", resources.memory_mib
        yield "resources.isolation", resources.isolation
    if (access := spec.access) is not None:
        keys = access.api_key_secret_ref
        # Naming one's own keys means those keys only: a parent's AnyKey must not open what they guard.
        yield "access.mode", access.mode or (AccessMode.OWN_KEYS if keys is not None else None)
        yield "access.apiKeySecretRef", keys and keys.name
