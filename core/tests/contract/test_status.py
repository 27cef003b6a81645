"""What a user reads in a contract's status: what it is held to, from where, and how it is doing."""

from typing import Any

from superinfer_core.api.v1alpha1.slocontract import FulfilmentState, SLOContractSpec
from superinfer_core.contract.fulfilment import ContractWindow, RequestOutcome
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.resolution import Resolution, resolve_contracts
from superinfer_core.contract.status import attainment_status, effective_status
from superinfer_core.refusal import RefusalCode


def resolved(**child: Any) -> Resolution:
    parent = {
        "tier": "Silver",
        "objectives": [{"metric": "TTFT", "percentile": 99, "targetMs": 300}],
        "availability": "90",
        "maxJitterMs": 50,
    }
    return resolve_contracts(
        StoredContract("shop", name, SLOContractSpec.model_validate(spec), created=name)
        for name, spec in (("base", parent), ("base-chat", child))
    )


def test_the_effective_spec_is_complete_and_says_where_each_field_comes_from() -> None:
    resolution = resolved(quota={"concurrency": 2}, fallbackRef={"name": "base"})
    status = effective_status(resolution.contracts["shop/base-chat"])
    assert status is not None
    assert status.parent == "shop/base"
    assert status.spec.model_dump(mode="json", exclude_none=True) == {
        "serviceID": "base-chat",
        "tier": "Silver",
        "priority": 0,
        "objectives": [{"metric": "TTFT", "percentile": 99, "targetMs": 300}],
        "maxJitterMs": 50,
        "availability": "90",
        "window": "1h",
        "onInfeasible": "Reject",
        "fallbackRef": {"name": "base"},
        "quota": {"concurrency": 2},
        "access": {"mode": "OwnKeys"},
    }
    assert {o.field: o.contract for o in status.origins or []}["tier"] == "shop/base"


def test_the_percentile_that_makes_the_deadline_comes_first() -> None:
    objectives = [
        {"metric": metric, "percentile": percentile, "targetMs": 10 * percentile}
        for metric in ("E2E", "TTFT")
        for percentile in (50, 99, 90)
    ]
    spec = SLOContractSpec.model_validate({"objectives": objectives})
    resolution = resolve_contracts([StoredContract("shop", "a", spec)])
    status = effective_status(resolution.contracts["shop/a"])
    assert status is not None
    assert [(o.metric.value, o.percentile) for o in status.spec.objectives or []] == [
        ("TTFT", 99),
        ("TTFT", 90),
        ("TTFT", 50),
        ("E2E", 99),
        ("E2E", 90),
        ("E2E", 50),
    ]


def test_an_effective_spec_alone_means_the_same_contract() -> None:
    contract = resolved(quota={"concurrency": 2}).contracts["shop/base-chat"]
    status = effective_status(contract)
    assert status is not None
    alone = resolve_contracts([StoredContract("shop", "base-chat", status.spec)]).effective["shop/base-chat"]
    assert contract.effective is not None
    assert alone.objectives == contract.effective.objectives
    assert alone.quota == contract.effective.quota
    assert alone.availability == contract.effective.availability


def test_a_contract_out_of_effect_has_no_effective_spec() -> None:
    resolution = resolved(maxJitterMs=60)
    assert effective_status(resolution.contracts["shop/base-chat"]) is None


def test_attainment_is_unknown_kept_or_broken() -> None:
    window = ContractWindow(resolved().effective["shop/base-chat"])
    assert attainment_status(window.attainment(0), "t").fulfilled is FulfilmentState.UNKNOWN
    for _ in range(9):
        window.record(0, RequestOutcome(ttft_ms=100, e2e_ms=500))
    assert attainment_status(window.attainment(1), "t").fulfilled is FulfilmentState.KEPT
    window.record(1, RequestOutcome(ttft_ms=301, e2e_ms=500))
    window.record(1, RequestOutcome(admitted=False, refusal=RefusalCode.SATURATED))
    status = attainment_status(window.attainment(2), "2026-01-01T00:00:00Z")
    assert status.fulfilled is FulfilmentState.BROKEN
    assert (status.offered, status.admitted) == (11, 10)
    assert [(p.promise, p.kept_percent) for p in status.promises or []] == [
        ("TTFT P99 300 ms", "90.00"),
        ("jitter P99", "100.00"),
        ("availability 90", "90.91"),
    ]
