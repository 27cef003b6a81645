"""From records to figures: what counts as admitted, kept and fulfilled."""

from dataclasses import replace

import pytest

from superinfer.load.record import RequestRecord
from superinfer.load.run import Run
from superinfer_bench.slo.aims import aims
from superinfer_bench.slo.outcome import Measured, admitted, kept_of_contracts


def record(number: int, tier: str = "gold", **more: object) -> RequestRecord:
    """Served and kept unless told otherwise."""
    base = RequestRecord(
        request_id=f"{tier}-{number}",
        contract=f"bench/{tier}-0",
        tier=tier,
        prompt_tokens=10,
        output_tokens=5,
        ttft_target_ms=100.0,
        itl_target_ms=20.0,
        due_ms=float(number),
        sent_ms=float(number),
        status=200,
        tokens=5,
        ttft_ms=50.0,
        itl_ms=10.0,
        e2e_ms=90.0,
    )
    return replace(base, **more)  # type: ignore[arg-type]


REFUSED = {"status": 425, "code": "slo_infeasible", "ttft_ms": None, "itl_ms": None, "tokens": 0}
EXPIRED = {**REFUSED, "status": 504, "code": "deadline_expired"}
LATE = {"ttft_ms": 100.1}


def measured(records: list[RequestRecord], policy: str = "superinfer", load: float = 1.5) -> Measured:
    return Measured(policy, load, Run(records, 10.0))


@pytest.mark.parametrize(
    ("more", "is_admitted", "is_kept"),
    [
        pytest.param({}, True, True, id="served in time"),
        pytest.param(LATE, True, False, id="first token late"),
        pytest.param({"itl_ms": 20.1}, True, False, id="tokens too far apart"),
        pytest.param({"itl_ms": None, "tokens": 1}, True, True, id="one token has no gap"),
        pytest.param(REFUSED, False, False, id="refused at the door"),
        pytest.param(EXPIRED, True, False, id="given up after admission counts as a miss"),
        pytest.param({"error": "broke off"}, True, False, id="a broken stream"),
        pytest.param({"status": 0, "error": "gone"}, True, False, id="no answer at all"),
    ],
)
def test_admitted_and_kept(more: dict[str, object], is_admitted: bool, is_kept: bool) -> None:
    found = record(1, **more)
    assert (admitted(found), found.kept) == (is_admitted, is_kept)


@pytest.mark.parametrize(
    ("tier", "kept", "late", "refused", "fulfilled"),
    [
        pytest.param("gold", 10, 0, 0, True, id="all kept"),
        pytest.param("gold", 9, 1, 0, False, id="one late of ten breaks P99"),
        pytest.param("bronze", 19, 1, 0, True, id="one late of twenty is within P95"),
        pytest.param("gold", 9, 0, 1, True, id="one refused of ten is within 0.9"),
        pytest.param("gold", 8, 0, 2, False, id="two refused of ten are not"),
        pytest.param("bronze", 5, 0, 5, True, id="half of bronze may be refused"),
        pytest.param("bronze", 0, 0, 5, False, id="refusing everything keeps nothing"),
    ],
)
def test_a_contract_is_fulfilled_by_percentile_and_availability(
    tier: str, kept: int, late: int, refused: int, fulfilled: bool
) -> None:
    records = [record(n, tier) for n in range(kept)]
    records += [record(100 + n, tier, **LATE) for n in range(late)]
    records += [record(200 + n, tier, **REFUSED) for n in range(refused)]
    assert kept_of_contracts(records) == float(fulfilled)


def test_a_run_has_issue_as_keys() -> None:
    entry = measured([record(1), record(2, "silver", **LATE), record(3, "bronze", **REFUSED)]).as_json(
        {"wrongly_refused": 0}
    )
    assert {
        "policy", "load", "goodput_rps", "tokens_per_s", "refused", "preempted", "wrongly_admitted",
        "wrongly_refused", "tiers", "kept_of_contracts", "ttft_ms", "itl_ms",
    } <= set(entry)  # fmt: skip
    assert entry["goodput_rps"] == 0.1
    assert entry["wrongly_admitted"] == 1
    assert entry["refused"] == 1
    silver = entry["tiers"]["silver"]
    assert (silver["offered"], silver["admitted"], silver["kept"]) == (1, 1, 0)


def test_nothing_measured_meets_no_aim() -> None:
    assert not any(aim.met for aim in aims([], {}))


def test_aims_compare_with_the_best_baseline() -> None:
    ours = measured([record(n) for n in range(30)])
    worse = measured([record(n) for n in range(5)], "fcfs")
    better = measured([record(n) for n in range(15)], "priority")
    found = {aim.name: aim for aim in aims([ours, worse, better], {1.5: 1.0})}
    assert found["1.5x: goodput over best baseline"].got == 2.0
    assert not found["1.5x: goodput over best baseline"].met
    assert found["1.5x: admitted gold kept"].met
    assert not found["0.7x: all offered kept"].met
