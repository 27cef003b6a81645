"""The short YAML of the first users, and its way to an SLOContract and back.

p95_ms and p99_ms mean end-to-end latency. short -> contract -> short is the identity; contract -> short
either is exact or raises `ContractInvalid` naming every field that does not fit. Pure; safe from any thread.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from superinfer_core.api.v1alpha1.meta import API_VERSION, DNS_LABEL, ShortText
from superinfer_core.api.v1alpha1.slocontract import (
    SLOCONTRACT_KIND,
    ObjectiveSpec,
    SLOContract,
    SLOContractSpec,
    TargetMs,
)
from superinfer_core.contract.field_errors import problems_of
from superinfer_core.contract.known_fields import unknown_fields
from superinfer_core.contract.problems import ContractInvalid, FieldProblem
from superinfer_core.slo import Metric, OnInfeasible
from superinfer_core.words import shown

_ServiceId = Annotated[str, StringConstraints(strict=True, pattern=DNS_LABEL, min_length=1, max_length=63)]


class _Short(BaseModel):
    """Snake_case outside, too."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ShortLatency(_Short):
    """`slo.latency`: end-to-end targets in milliseconds."""

    p95_ms: TargetMs | None = None
    p99_ms: TargetMs | None = None
    max_jitter_ms: TargetMs | None = None


class ShortSlo(_Short):
    """`slo`."""

    latency: ShortLatency


class ShortFallback(_Short):
    """`fallback`: whether a request that cannot be kept may be served otherwise, and by which service."""

    allowed: Annotated[bool, Field(strict=True)]
    alternative_service: _ServiceId | None = None


class ShortResources(_Short):
    """`resource_constraints`. memory_per_gpu_mb is taken as MiB, which is what GPU tools print."""

    min_gpu_count: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    preferred_gpu_type: ShortText | None = None
    memory_per_gpu_mb: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] | None = None


class ShortContract(_Short):
    """The whole short form."""

    service_id: _ServiceId
    slo: ShortSlo | None = None
    availability: Annotated[float, Field(strict=True, ge=1, lt=100)] | None = None
    fallback: ShortFallback | None = None
    resource_constraints: ShortResources | None = None


_FIELDS: Final = frozenset(ShortContract.model_fields)


def is_short(document: Mapping[str, Any]) -> bool:
    """Whether a document is meant as the short form: no kind, and a field only the short form has."""
    return "kind" not in document and "apiVersion" not in document and not _FIELDS.isdisjoint(document)


def long_from_short(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same contract in the long form, as a plain document.

    Raises:
        ContractInvalid: with the field names of the short form.
    """
    problems = unknown_fields(document, ShortContract)
    try:
        short = ShortContract.model_validate(dict(document))
    except ValidationError as error:
        raise ContractInvalid((*problems, *problems_of(error))) from None
    problems += _short_problems(short)
    if problems:
        raise ContractInvalid(tuple(problems))
    spec: dict[str, Any] = {"serviceID": short.service_id}
    if short.slo is not None:
        latency = short.slo.latency
        pairs = ((95, latency.p95_ms), (99, latency.p99_ms))
        objectives = [
            {"metric": Metric.E2E.value, "percentile": percentile, "targetMs": target}
            for percentile, target in pairs
            if target is not None
        ]
        spec |= {"objectives": objectives} if objectives else {}
        spec |= {"maxJitterMs": latency.max_jitter_ms} if latency.max_jitter_ms is not None else {}
    if short.availability is not None:
        spec["availability"] = _percent_text(short.availability)
    spec |= _fallback_fields(short.fallback)
    if short.resource_constraints is not None:
        spec["resources"] = _without_none(
            minChiplets=short.resource_constraints.min_gpu_count,
            product=short.resource_constraints.preferred_gpu_type,
            memoryMiB=short.resource_constraints.memory_per_gpu_mb,
        )
    return {
        "apiVersion": API_VERSION,
        "kind": SLOCONTRACT_KIND,
        "metadata": {"name": short.service_id},
        "spec": spec,
    }


def short_from_contract(contract: SLOContract) -> dict[str, Any]:
    """The contract in the short form, as a plain document.

    Raises:
        ContractInvalid: naming every field the short form has no place for.
    """
    spec = contract.spec
    problems = [*_misfits(contract), *_objective_misfits(spec.objectives or []), *_fallback_misfits(spec)]
    if problems:
        raise ContractInvalid(tuple(problems))
    targets = {objective.percentile: objective.target_ms for objective in spec.objectives or []}
    latency = _without_none(p95_ms=targets.get(95), p99_ms=targets.get(99), max_jitter_ms=spec.max_jitter_ms)
    short: dict[str, Any] = {"service_id": contract.service_id}
    if latency:
        short["slo"] = {"latency": latency}
    if spec.availability is not None:
        percent = float(spec.availability)
        short["availability"] = int(percent) if percent.is_integer() else percent
    if spec.on_infeasible is not None:
        short["fallback"] = {"allowed": spec.on_infeasible is not OnInfeasible.REJECT} | _without_none(
            alternative_service=spec.fallback_ref.name if spec.fallback_ref is not None else None
        )
    if spec.resources is not None:
        resources = _without_none(
            min_gpu_count=spec.resources.min_chiplets,
            preferred_gpu_type=spec.resources.product,
            memory_per_gpu_mb=spec.resources.memory_mib,
        )
        short |= {"resource_constraints": resources} if resources else {}
    return short


def _without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _percent_text(percent: float) -> str:
    text = f"{percent:.4f}"
    return text.rstrip("0").rstrip(".")


def _fallback_fields(fallback: ShortFallback | None) -> dict[str, Any]:
    if fallback is None:
        return {}
    alternative = fallback.alternative_service
    if not fallback.allowed:
        policy = OnInfeasible.REJECT
    else:
        policy = OnInfeasible.DEGRADE if alternative is None else OnInfeasible.FALLBACK
    fields: dict[str, Any] = {"onInfeasible": policy.value}
    return fields if alternative is None else fields | {"fallbackRef": {"name": alternative}}


def _short_problems(short: ShortContract) -> list[FieldProblem]:
    problems = []
    empty = "says nothing", "remove it, or state one of its fields"
    if short.slo is not None:
        latency = short.slo.latency
        if not latency.model_dump(exclude_none=True):
            problems.append(FieldProblem("slo.latency", "{}", *empty))
        if latency.p95_ms is not None and latency.p99_ms is not None and latency.p95_ms > latency.p99_ms:
            problems.append(
                FieldProblem(
                    "slo.latency.p95_ms",
                    shown(latency.p95_ms),
                    f"is looser than p99_ms ({latency.p99_ms}), which it can then never bind",
                    f"write at most {latency.p99_ms}, or remove it",
                )
            )
    if short.resource_constraints is not None and not short.resource_constraints.model_dump(
        exclude_none=True
    ):
        problems.append(FieldProblem("resource_constraints", "{}", *empty))
    if short.availability is not None and float(_percent_text(short.availability)) != short.availability:
        problems.append(
            FieldProblem(
                "availability",
                shown(short.availability),
                "has more than four decimals",
                f"write {_percent_text(short.availability)}",
            )
        )
    return problems


def _does_not_fit(field: str, value: object) -> FieldProblem:
    return FieldProblem(
        field, shown(value), "has no place in the short form", "keep the long form, or remove it"
    )


def _misfits(contract: SLOContract) -> list[FieldProblem]:
    meta, spec = contract.metadata, contract.spec
    values: dict[str, object] = {
        "metadata.namespace": meta.namespace,
        "metadata.labels": meta.labels or None,
        "metadata.annotations": meta.annotations or None,
        "metadata.name": meta.name if meta.name != contract.service_id else None,
        "spec.parentRef": spec.parent_ref and spec.parent_ref.name,
        "spec.poolRef": spec.pool_ref and spec.pool_ref.name,
        "spec.tier": spec.tier and spec.tier.value,
        "spec.priority": spec.priority,
        "spec.window": spec.window,
        "spec.quota": spec.quota and spec.quota.model_dump(exclude_none=True),
        "spec.access": spec.access and spec.access.model_dump(exclude_none=True),
        "spec.resources.isolation": spec.resources and spec.resources.isolation,
    }
    return [_does_not_fit(field, value) for field, value in values.items() if value is not None]


def _objective_misfits(objectives: list[ObjectiveSpec]) -> list[FieldProblem]:
    return [
        _does_not_fit(
            f"spec.objectives[{index}]",
            f"{objective.metric} P{objective.percentile} {objective.target_ms} ms",
        )
        for index, objective in enumerate(objectives)
        if objective.metric is not Metric.E2E or objective.percentile not in (95, 99)
    ]


def _fallback_misfits(spec: SLOContractSpec) -> list[FieldProblem]:
    policy, reference = spec.on_infeasible, spec.fallback_ref
    if policy is OnInfeasible.FALLBACK and reference is None:
        return [_does_not_fit("spec.onInfeasible", "Fallback without fallbackRef")]
    if policy is OnInfeasible.DEGRADE and reference is not None:
        return [_does_not_fit("spec.fallbackRef", "fallbackRef beside onInfeasible: Degrade")]
    if policy is None and reference is not None:
        return [_does_not_fit("spec.fallbackRef", "fallbackRef without onInfeasible")]
    if reference is not None and "." in reference.name:
        return [_does_not_fit("spec.fallbackRef.name", reference.name)]
    return []
