"""Admission: both halves, room for higher ranks, and an answer for any state."""

from dataclasses import replace

import pytest
from hypothesis import given
from scheduling_cases import CTX, MODEL, NOW, contexts, decoding, engine, engines, states, waiting

from superinfer_core.refusal import RefusalCode
from superinfer_core.scheduling.admission import admit, feasible_when_idle
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import ForecastSnapshot, RankLoad
from superinfer_core.scheduling.policy import Order
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.slo import Rank, Tier


@given(candidate=states("candidate"), state=engines(), ctx=contexts)
def test_every_state_gets_an_answer_with_a_reason(
    candidate: RequestState, state: EngineState, ctx: DecisionContext
) -> None:
    candidate = replace(candidate, phase=Phase.WAITING)
    answer = admit(candidate, state, NOW, ctx)
    assert answer.admitted == (answer.refusal is None)
    if answer.refusal is not None:
        assert answer.refusal.code is RefusalCode.SLO_INFEASIBLE
        assert answer.refusal.feasible_when_idle is not None


@given(candidate=states("candidate"), state=engines(0), ctx=contexts)
def test_an_idle_engine_admits_exactly_what_is_feasible_when_idle(
    candidate: RequestState, state: EngineState, ctx: DecisionContext
) -> None:
    ctx = replace(ctx, policy=replace(ctx.policy, order=Order.SLACK))
    promised = replace(candidate.slo, best_effort=False)
    candidate = replace(candidate, phase=Phase.WAITING, slo=promised)
    assert admit(candidate, state, NOW, ctx).admitted == feasible_when_idle(candidate, state, NOW, ctx)


def test_what_no_engine_can_do_says_so() -> None:
    answer = admit(waiting("c", Tier.GOLD, prompt=2000, ttft=50), engine(), NOW, CTX)
    assert answer.refusal is not None
    assert answer.refusal.metric == "TTFT"
    assert answer.refusal.feasible_when_idle is False
    assert answer.refusal.tightest_ms == pytest.approx(MODEL.prefill_ms(2000, chunk_tokens=2048), rel=0.1)


def test_the_tightest_target_of_a_refusal_is_what_is_predicted_now() -> None:
    busy = engine(waiting("first", Tier.GOLD, prompt=1000, ttft=70))
    refused = admit(waiting("c", Tier.GOLD, prompt=1000, ttft=115), busy, NOW, CTX)
    assert refused.refusal is not None
    assert refused.refusal.feasible_when_idle is True
    assert refused.refusal.tightest_ms == refused.prediction.ttft_ms
    assert admit(
        waiting("c", Tier.GOLD, prompt=1000, ttft=refused.prediction.ttft_ms + 10), busy, NOW, CTX
    ).admitted


def test_an_admitted_request_is_not_pushed_past_its_deadline() -> None:
    admitted = waiting("bronze", Tier.BRONZE, prompt=2000, ttft=180)
    answer = admit(waiting("gold", Tier.GOLD, prompt=2000), engine(admitted), NOW, CTX)
    late = admit(waiting("gold", Tier.GOLD, prompt=2000, ttft=170), engine(admitted), NOW, CTX)
    assert not answer.admitted or not late.admitted
    assert late.refusal is not None


def test_harm_is_said_to_be_harm() -> None:
    admitted = waiting("bronze", Tier.BRONZE, prompt=2000, ttft=200)
    answer = admit(waiting("gold", Tier.GOLD, prompt=1500, ttft=150), engine(admitted), NOW, CTX)
    assert answer.refusal is not None
    assert answer.refusal.harm


def test_bronze_leaves_the_places_that_gold_is_expected_to_need() -> None:
    ctx = replace(CTX, forecast=ForecastSnapshot((RankLoad(Rank(0), 0.3, 30.0, 0.01, 1.0),), 100.0))
    busy = engine(*(decoding(f"b{i}", Tier.BRONZE) for i in range(10)))
    assert admit(waiting("bronze", Tier.BRONZE), busy, NOW, CTX).admitted
    assert not admit(waiting("bronze", Tier.BRONZE), busy, NOW, ctx).admitted
    assert admit(waiting("gold", Tier.GOLD), busy, NOW, ctx).admitted


def test_best_effort_is_always_let_in() -> None:
    c = waiting("c", Tier.BRONZE, ttft=1)
    assert admit(replace(c, slo=replace(c.slo, best_effort=True)), engine(), NOW, CTX).admitted


def test_a_burst_is_admitted_only_as_far_as_it_can_be_kept() -> None:
    state, admitted = engine(), 0
    for i in range(40):
        c = waiting(f"g{i}", Tier.GOLD, prompt=1000)
        if admit(c, state, NOW, CTX).admitted:
            admitted += 1
            state = replace(state, requests=(*state.requests, c))
    together = admitted * MODEL.prefill_work_ms(1000)
    assert 1 <= admitted < 40
    assert together <= waiting("x", Tier.GOLD, prompt=1000).slo.ttft_ms  # type: ignore[operator]
