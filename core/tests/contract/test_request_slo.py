"""What one request is promised: its contract's strictest targets, tightened by headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.contract.budget import WindowState
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.headers import HeaderSlo
from superinfer_core.contract.request_slo import best_effort_slo, request_slo
from superinfer_core.slo import Metric, Objective, Rank, Tier

CONTRACT = EffectiveContract(
    namespace="shop",
    service_id="checkout",
    tier=Tier.GOLD,
    priority=7,
    objectives=(
        Objective(Metric.E2E, 95, 2000),
        Objective(Metric.TTFT, 50, 100),
        Objective(Metric.TTFT, 99, 300),
    ),
    max_jitter_ms=50,
)

targets = st.none() | st.floats(min_value=0.001, max_value=3_600_000)


def test_a_metric_is_due_at_the_target_of_its_highest_percentile() -> None:
    slo = request_slo(CONTRACT)
    assert (slo.ttft_ms, slo.itl_ms, slo.e2e_ms, slo.max_jitter_ms) == (300, None, 2000, 50)
    assert slo.contract == "shop/checkout"
    assert slo.rank == Rank(0, -7)
    assert slo.quantile == 0.99


def test_headers_tighten_and_add_but_never_loosen() -> None:
    slo = request_slo(CONTRACT, HeaderSlo(ttft_ms=500, itl_ms=40, e2e_ms=900))
    assert (slo.ttft_ms, slo.itl_ms, slo.e2e_ms) == (300, 40, 900)


def test_the_state_of_the_window_travels_with_the_request() -> None:
    slo = request_slo(CONTRACT, window=WindowState(holds=False, budget_left=0.0))
    assert (slo.contract_holds, slo.budget_left) == (False, 0.0)


@pytest.mark.parametrize(
    ("headers", "best_effort"),
    [
        pytest.param(HeaderSlo(), True, id="nothing asked for: best effort"),
        pytest.param(HeaderSlo(ttft_ms=200), False, id="a header's target is enforced all the same"),
    ],
)
def test_without_a_contract_work_is_last_and_sheddable(headers: HeaderSlo, best_effort: bool) -> None:
    slo = request_slo(None, headers)
    assert slo.best_effort is best_effort
    assert slo.rank.sheddable
    assert slo.rank > Rank(Tier.BRONZE.rank, 1_000_000)
    assert slo.ttft_ms == headers.ttft_ms


def test_degraded_work_has_no_deadline_but_stays_its_contracts() -> None:
    slo = best_effort_slo(CONTRACT)
    assert (slo.contract, slo.best_effort, slo.ttft_ms, slo.e2e_ms) == ("shop/checkout", True, None, None)


@given(targets, targets, targets)
def test_no_header_ever_loosens_a_contract(ttft: float | None, itl: float | None, e2e: float | None) -> None:
    plain = request_slo(CONTRACT)
    asked = request_slo(CONTRACT, HeaderSlo(ttft_ms=ttft, itl_ms=itl, e2e_ms=e2e))
    for before, after, header in (
        (plain.ttft_ms, asked.ttft_ms, ttft),
        (plain.itl_ms, asked.itl_ms, itl),
        (plain.e2e_ms, asked.e2e_ms, e2e),
    ):
        assert before is None or (after is not None and after <= before)
        assert header is None or (after is not None and after <= header)
