"""The status of an SLOContract from what resolution and fulfilment found; for the operator and contracts API.

Pure: times are RFC 3339 text passed in. Figures are text with two decimals, because a CRD has no floats and
because status that changes with every request would be written with every request.
"""

from typing import Any

from superinfer_core.api.v1alpha1.meta import LocalRef
from superinfer_core.api.v1alpha1.slocontract import (
    AccessSpec,
    AttainmentStatus,
    EffectiveStatus,
    FulfilmentState,
    ObjectiveSpec,
    OriginStatus,
    PromiseStatus,
    QuotaSpec,
    ResourcesSpec,
    SLOContractSpec,
)
from superinfer_core.contract.budget import Budget
from superinfer_core.contract.fulfilment import Attainment
from superinfer_core.contract.inheritance import Fields, objectives_of
from superinfer_core.contract.resolution import ResolvedContract
from superinfer_core.slo import Metric


def effective_status(contract: ResolvedContract) -> EffectiveStatus | None:
    """The contract after inheritance with the origin of every field; None where it is not in effect."""
    if contract.effective is None:
        return None
    return EffectiveStatus(
        parent=contract.parent,
        spec=effective_spec(contract.effective.service_id, contract.fields),
        origins=[
            OriginStatus(field=path, contract=contract.fields[path].origin)
            for path in sorted(contract.fields)
        ],
    )


def effective_spec(service_id: str, fields: Fields) -> SLOContractSpec:
    """A spec that states everything a contract inherited or got by default.

    Of each metric the highest percentile comes first: it is the one a request's deadline is made from, and a
    column of `kubectl get` can show only one.
    """

    def value(path: str) -> Any:
        stated = fields.get(path)
        return None if stated is None else stated.value

    def reference(path: str) -> LocalRef | None:
        name = value(path)
        return None if name is None else LocalRef(name=name)

    quota = QuotaSpec(
        requests_per_second=value("quota.requestsPerSecond"),
        tokens_per_minute=value("quota.tokensPerMinute"),
        concurrency=value("quota.concurrency"),
    )
    resources = ResourcesSpec(
        min_chiplets=value("resources.minChiplets"),
        product=value("resources.product"),
        memory_mib=value("resources.memoryMiB"),
        isolation=value("resources.isolation"),
    )
    return SLOContractSpec(
        service_id=service_id,
        pool_ref=value("poolRef"),
        tier=value("tier"),
        priority=value("priority"),
        objectives=[
            ObjectiveSpec(metric=o.metric, percentile=int(o.percentile), target_ms=o.target_ms)
            for o in sorted(
                (objective for _, objective, _ in objectives_of(fields)),
                key=lambda objective: (list(Metric).index(objective.metric), -objective.percentile),
            )
        ],
        max_jitter_ms=value("maxJitterMs"),
        availability=value("availability"),
        window=value("window"),
        on_infeasible=value("onInfeasible"),
        fallback_ref=reference("fallbackRef"),
        quota=quota if quota != QuotaSpec() else None,
        resources=resources if resources != ResourcesSpec() else None,
        access=AccessSpec(mode=value("access.mode"), api_key_secret_ref=reference("access.apiKeySecretRef")),
    )


def attainment_status(attainment: Attainment, updated_at: str) -> AttainmentStatus:
    """How a contract is doing, coarse."""
    counts = attainment.counts
    if counts.offered == 0:
        state = FulfilmentState.UNKNOWN
    else:
        state = FulfilmentState.KEPT if attainment.fulfilled else FulfilmentState.BROKEN
    promises = [
        _promise(f"{o.objective.metric} P{o.objective.percentile:g} {o.objective.target_ms} ms", o.budget)
        for o in attainment.objectives
    ]
    if attainment.jitter is not None:
        promises.append(_promise(f"jitter P{attainment.jitter.percent:g}", attainment.jitter))
    if attainment.availability is not None:
        promises.append(
            _promise(f"availability {attainment.availability.percent:g}", attainment.availability)
        )
    return AttainmentStatus(
        fulfilled=state,
        offered=counts.offered,
        admitted=counts.admitted,
        promises=promises,
        updated_at=updated_at,
    )


def _promise(words: str, budget: Budget) -> PromiseStatus:
    return PromiseStatus(
        promise=words,
        kept_percent=f"{budget.share * 100:.2f}",
        budget_left_percent=f"{budget.left * 100:.2f}",
    )
