"""Kept or not: per request, and per contract over a rolling window."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.contract.budget import error_budget
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.fulfilment import (
    BUCKETS,
    ContractWindow,
    RequestOutcome,
    WindowCounts,
    attainment_of,
    jitter_ms,
    kept,
)
from superinfer_core.refusal import COUNTS_AGAINST_AVAILABILITY, RefusalCode
from superinfer_core.slo import Metric, Objective, OnInfeasible, Rank, RequestSlo, Tier

SLO = RequestSlo("shop/a", Rank(0), ttft_ms=100, itl_ms=20, e2e_ms=1000, max_jitter_ms=30)
IN_TIME = RequestOutcome("shop/a", ttft_ms=90, itl_ms=15, e2e_ms=900, jitter_ms=25, output_tokens=40)
REFUSED = RequestOutcome("shop/a", admitted=False, refusal=RefusalCode.SLO_INFEASIBLE)
WINDOW_MS = 3_600_000.0


def promised(**fields: object) -> EffectiveContract:
    defaults = {"objectives": (Objective(Metric.E2E, 95, 1000), Objective(Metric.TTFT, 99, 100))}
    return EffectiveContract("shop", "a", Tier.GOLD, 0, **{**defaults, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        pytest.param(IN_TIME, True, id="everything in time"),
        pytest.param(replace(IN_TIME, ttft_ms=100, itl_ms=20, e2e_ms=1000), True, id="exactly in time"),
        pytest.param(replace(IN_TIME, ttft_ms=101), False, id="first token late"),
        pytest.param(replace(IN_TIME, itl_ms=20.5), False, id="tokens too slow"),
        pytest.param(replace(IN_TIME, e2e_ms=1001), False, id="end late"),
        pytest.param(replace(IN_TIME, jitter_ms=31), False, id="too uneven"),
        pytest.param(
            replace(IN_TIME, itl_ms=None, jitter_ms=None, output_tokens=1), True, id="one token has no gaps"
        ),
        pytest.param(REFUSED, False, id="refused"),
        pytest.param(replace(IN_TIME, refusal=RefusalCode.ENGINE_FAILED), False, id="broke in the middle"),
        pytest.param(replace(IN_TIME, cancelled=True), False, id="the client left"),
        pytest.param(replace(IN_TIME, admitted=False, degraded=True), False, id="served as best effort"),
    ],
)
def test_a_request_keeps_its_contract_only_if_everything_held(outcome: RequestOutcome, want: bool) -> None:
    assert kept(outcome, SLO) is want


@pytest.mark.parametrize(
    ("gaps", "want"),
    [([], None), ([5.0], None), ([5.0, 5.0], 0.0), ([5.0, 1.0, 9.0], 8.0)],
    ids=["no gaps", "one gap", "even", "uneven"],
)
def test_jitter_is_the_greatest_minus_the_least_gap(gaps: list[float], want: float | None) -> None:
    assert jitter_ms(gaps) == want


def fill(window: ContractWindow, outcomes: list[RequestOutcome], *, start_ms: float = 0.0) -> float:
    now = start_ms
    for outcome in outcomes:
        window.record(now, outcome)
        now += 1.0
    return now


@pytest.mark.parametrize(
    ("late", "fulfilled"),
    [(0, True), (1, True), (2, False)],
    ids=["none late", "P99 exactly", "one too many"],
)
def test_a_percentile_holds_up_to_its_last_permitted_miss(late: int, fulfilled: bool) -> None:
    window = ContractWindow(promised())
    now = fill(window, [replace(IN_TIME, ttft_ms=150)] * late + [IN_TIME] * (100 - late))
    attainment = window.attainment(now)
    assert attainment.fulfilled is fulfilled
    ttft = attainment.objectives[1]
    assert ttft.objective.metric is Metric.TTFT
    assert (ttft.budget.considered, ttft.budget.missed) == (100, late)
    assert attainment.objectives[0].budget.missed == 0
    assert attainment.counts.kept == 100 - late


def test_headers_tighter_than_the_contract_decide_for_the_request_only() -> None:
    window = ContractWindow(promised())
    assert window.record(0, IN_TIME, replace(SLO, ttft_ms=50)) is False
    attainment = window.attainment(1)
    assert attainment.counts.kept == 0
    assert attainment.objectives[1].budget.missed == 0


@pytest.mark.parametrize("code", list(RefusalCode))
def test_availability_counts_what_the_service_owes_and_nothing_else(code: RefusalCode) -> None:
    window = ContractWindow(promised(availability=90.0))
    now = fill(window, [IN_TIME] * 9 + [replace(REFUSED, refusal=code)] * 2)
    attainment = window.attainment(now)
    assert attainment.availability is not None
    owed = code in COUNTS_AGAINST_AVAILABILITY
    assert (attainment.counts.offered, attainment.counts.served) == (11 if owed else 9, 9)
    assert attainment.counts.excluded == (0 if owed else 2)
    assert attainment.fulfilled is not owed


def test_clients_that_hang_up_count_neither_way() -> None:
    window = ContractWindow(promised(availability=99.0))
    now = fill(window, [replace(IN_TIME, ttft_ms=9999, cancelled=True)] * 50 + [IN_TIME])
    attainment = window.attainment(now)
    assert (attainment.counts.offered, attainment.counts.admitted, attainment.counts.cancelled) == (1, 1, 50)
    assert attainment.fulfilled


def test_refusing_everything_keeps_nothing() -> None:
    window = ContractWindow(promised())
    now = fill(window, [REFUSED] * 5)
    assert window.attainment(now).fulfilled is False


def test_an_admitted_request_that_broke_misses_what_had_not_happened_in_time() -> None:
    contract = promised(
        objectives=(
            Objective(Metric.E2E, 95, 1000),
            Objective(Metric.ITL, 95, 20),
            Objective(Metric.TTFT, 99, 100),
        )
    )
    window = ContractWindow(contract)
    window.record(0, replace(IN_TIME, e2e_ms=None, refusal=RefusalCode.ENGINE_FAILED))
    window.record(1, RequestOutcome("shop/a", refusal=RefusalCode.DEADLINE_EXPIRED))
    misses = [o.budget.missed for o in window.attainment(2).objectives]
    assert misses == [2, 2, 1]


def test_degraded_requests_are_served_but_in_no_percentile() -> None:
    window = ContractWindow(promised(availability=99.0))
    degraded = replace(IN_TIME, ttft_ms=5000, admitted=False, degraded=True)
    attainment = window.attainment(fill(window, [IN_TIME, degraded]))
    assert (attainment.counts.offered, attainment.counts.served, attainment.counts.admitted) == (2, 2, 1)
    assert attainment.counts.degraded == 1
    assert attainment.fulfilled


def test_jitter_is_held_to_the_contract_s_strictest_percentile() -> None:
    window = ContractWindow(promised(max_jitter_ms=30))
    now = fill(window, [replace(IN_TIME, jitter_ms=31)] * 2 + [IN_TIME] * 98)
    attainment = window.attainment(now)
    assert attainment.jitter is not None
    assert (attainment.jitter.percent, attainment.jitter.missed) == (99, 2)
    assert attainment.fulfilled is False


def test_what_is_older_than_the_window_is_forgotten() -> None:
    window = ContractWindow(promised())
    fill(window, [replace(IN_TIME, ttft_ms=500)] * 10)
    later = WINDOW_MS / 2
    window.record(later, IN_TIME)
    assert window.attainment(later).fulfilled is False
    assert window.counts(later).admitted == 11
    assert window.attainment(WINDOW_MS + 1).fulfilled
    assert window.counts(WINDOW_MS + 1).admitted == 1
    assert window.counts(10 * WINDOW_MS) == WindowCounts(misses=(0, 0, 0))


def test_a_new_window_is_not_written_off_for_its_first_miss() -> None:
    window = ContractWindow(promised())
    window.record(0, replace(IN_TIME, ttft_ms=500))
    state = window.state(1)
    assert state.holds
    assert 0 < state.budget_left < 1
    for minute in range(30):
        window.record(minute * 60_000.0, replace(IN_TIME, ttft_ms=500))
    assert window.state(30 * 60_000.0).holds is False


def test_a_broken_contract_holds_again_when_its_misses_have_passed() -> None:
    window = ContractWindow(promised())
    for minute in range(60):
        window.record(minute * 60_000.0, replace(IN_TIME, ttft_ms=500) if minute < 3 else IN_TIME)
    assert window.state(WINDOW_MS - 1).holds is False
    assert window.state(WINDOW_MS + 4 * 60_000).holds


def test_the_budget_left_is_the_least_of_all_promises() -> None:
    window = ContractWindow(promised(availability=50.0))
    now = fill(window, [IN_TIME] * 1000 + [REFUSED] * 300, start_ms=-2 * WINDOW_MS)
    window.record(0, IN_TIME)
    now = fill(window, [IN_TIME] * 999 + [REFUSED] * 250, start_ms=1)
    attainment = window.attainment(now)
    assert attainment.covered == 1.0
    assert attainment.budget_left == pytest.approx(1 - 250 / 625)
    assert window.state(now).budget_left == attainment.budget_left


def test_an_edit_of_targets_starts_a_new_window_and_other_edits_do_not() -> None:
    window = ContractWindow(promised())
    window.record(0, IN_TIME)
    assert window.adopt(promised(on_infeasible=OnInfeasible.DEGRADE)) is window
    assert window.adopt(promised(availability=99.0)).counts(1).admitted == 1
    assert window.adopt(promised(objectives=(Objective(Metric.TTFT, 99, 5),))).counts(1).admitted == 0
    assert window.adopt(promised(window_s=60.0)).counts(1).admitted == 0
    assert window.adopt(promised(max_jitter_ms=1)).counts(1).admitted == 0


def test_counts_of_replicas_add_up_to_one_attainment() -> None:
    contract = promised(availability=90.0)
    windows = [ContractWindow(contract) for _ in range(3)]
    for window in windows:
        fill(window, [IN_TIME] * 33 + [replace(IN_TIME, ttft_ms=500)])
    total = windows[0].counts(100) + windows[1].counts(100) + windows[2].counts(100)
    attainment = attainment_of(contract, total)
    assert (attainment.counts.admitted, attainment.counts.kept) == (102, 99)
    assert attainment.objectives[1].budget.missed == 3
    assert attainment.fulfilled is False
    assert attainment_of(contract, WindowCounts()).fulfilled


@pytest.mark.parametrize(
    ("percent", "considered", "missed", "met"),
    [
        (99, 100, 1, True),
        (99.9, 1000, 1, True),
        (99.95, 2000, 1, True),
        (99.95, 1999, 1, False),
        (95, 20, 1, True),
        (95, 19, 1, False),
        (70, 10, 3, True),
        (99, 0, 0, True),
    ],
)
def test_a_budget_is_exact_at_its_edge(percent: float, considered: int, missed: int, met: bool) -> None:
    assert error_budget(percent, considered=considered, missed=missed, covered=1.0).met is met


outcomes = st.builds(
    RequestOutcome,
    admitted=st.booleans(),
    ttft_ms=st.none() | st.floats(0, 300),
    itl_ms=st.none() | st.floats(0, 60),
    e2e_ms=st.none() | st.floats(0, 3000),
    jitter_ms=st.none() | st.floats(0, 60),
    refusal=st.none() | st.sampled_from(list(RefusalCode)),
    cancelled=st.booleans(),
    degraded=st.booleans(),
)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(0, 400_000), outcomes), max_size=60), st.floats(10, 7200))
def test_every_request_is_counted_once_and_forgotten_once(
    steps: list[tuple[float, RequestOutcome]], window_s: float
) -> None:
    contract = promised(availability=90.0, max_jitter_ms=30, window_s=window_s)
    window = ContractWindow(contract)
    now, recorded = 0.0, []
    for gap, outcome in steps:
        now += gap
        window.record(now, outcome)
        recorded.append((now, outcome))
        counts = window.counts(now)
        bucket_ms = window_s * 1000 / BUCKETS
        live = [o for at, o in recorded if int(at // bucket_ms) > int(now // bucket_ms) - BUCKETS]
        assert counts.offered + counts.cancelled + counts.excluded == len(live)
        assert 0 <= counts.kept <= counts.admitted <= counts.offered
        assert 0 <= counts.served <= counts.offered
        assert all(0 <= missed <= counts.admitted for missed in counts.misses)
        attainment, state = window.attainment(now), window.state(now)
        assert 0.0 <= attainment.budget_left <= 1.0
        assert (state.holds, state.budget_left) == (attainment.holds, pytest.approx(attainment.budget_left))
        assert attainment.holds or not attainment.fulfilled
    assert window.counts(now + window_s * 2000) == WindowCounts(misses=(0, 0, 0))
