"""Pace kept for higher ranks: long contexts must not make the batch too slow for gold that is to come."""

import pytest

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.admission import admit
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import ArrivalForecast
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.slo import Rank, RequestSlo, Tier

MODEL = StepModel(3.0, 0.05, 0.0004, 0.03, 0.0)
"""Ten sequences of 2,000 tokens decode in 11.5 ms."""
GOLD_ITL_MS = 12.0


def request(name: str, tier: Tier, *, itl_ms: float, phase: Phase = Phase.WAITING) -> RequestState:
    slo = RequestSlo("c", Rank(tier.rank), ttft_ms=60_000.0, itl_ms=itl_ms)
    computed, first = (2000, 1.0) if phase is Phase.DECODE else (0, None)
    return RequestState(name, slo, 0.0, phase, 2000, computed, 10 if first else 0, 200, first)


def answer(decoding: int, tier: Tier, *, gold_seen: bool = True, gone_ms: float = 0.0) -> bool:
    forecast = ArrivalForecast()
    if gold_seen:
        for number in range(20):
            forecast.arrive(number * 10.0, request("g", Tier.GOLD, itl_ms=GOLD_ITL_MS), MODEL, 32)
    running = tuple(request(f"b{n}", Tier.BRONZE, itl_ms=100.0, phase=Phase.DECODE) for n in range(decoding))
    policy = SchedulingPolicy(reserve_places=0.0, reserve_share=0.0)
    ctx = DecisionContext(MODEL, policy, forecast=forecast.snapshot(200.0 + gone_ms))
    itl_ms = GOLD_ITL_MS if tier is Tier.GOLD else 100.0
    state = EngineState(32, 2048, 1 << 20, running)
    return admit(request("new", tier, itl_ms=itl_ms), state, 200.0, ctx).admitted


@pytest.mark.parametrize(
    ("decoding", "tier", "admitted"),
    [
        pytest.param(0, Tier.BRONZE, True, id="an idle engine takes bronze"),
        pytest.param(2, Tier.BRONZE, True, id="a few long contexts leave gold its pace"),
        pytest.param(9, Tier.BRONZE, False, id="a batch of them would not"),
        pytest.param(5, Tier.SILVER, True, id="silver may take more of it than bronze"),
        pytest.param(5, Tier.BRONZE, False, id="bronze may not"),
        pytest.param(8, Tier.GOLD, True, id="gold itself is judged by its own pace"),
    ],
)
def test_pace_is_kept_for_gold(decoding: int, tier: Tier, admitted: bool) -> None:
    assert answer(decoding, tier) is admitted


def test_nothing_is_kept_for_gold_that_never_came() -> None:
    assert answer(9, Tier.BRONZE, gold_seen=False)


def test_nothing_is_kept_for_gold_that_stopped_coming() -> None:
    assert answer(9, Tier.BRONZE, gone_ms=120_000.0)
