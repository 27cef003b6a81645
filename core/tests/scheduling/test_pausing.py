"""Pausing: a decode that is far ahead gives its time to others, and is never late for it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduling_cases import CTX, NOW, contexts, decoding, engine, engines, waiting

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.admission import admit
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import ForecastSnapshot
from superinfer_core.scheduling.pace import ahead_ms
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.scheduling.slack import next_token_deadline_ms
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.scheduling.step import StepPlan, plan_step
from superinfer_core.slo import Rank, RequestSlo, Tier

HEAVY = StepModel(3.0, 0.5, 0.0, 0.06, 0.0)
"""A token costs half a millisecond, so a batch of twenty takes 13 ms a step."""


def paused(plan: StepPlan, state: EngineState) -> set[str]:
    decodes = {r.request_id for r in state.requests if r.phase is Phase.DECODE}
    return decodes & set(plan.hold)


def far_ahead(name: str, **more: float | None) -> RequestState:
    r = decoding(name, Tier.BRONZE, done=100, ahead_ms=2_000)
    return replace(r, slo=replace(r.slo, **more))  # type: ignore[arg-type]


LONG = waiting("long", Tier.BRONZE, prompt=4_000)


@pytest.mark.parametrize(
    ("others", "promise", "pauses"),
    [
        pytest.param((LONG,), {}, True, id="ahead, and a prefill wants the time"),
        pytest.param((), {}, False, id="nobody wants the time"),
        pytest.param((LONG,), {"max_jitter_ms": 50.0}, False, id="a bound on jitter is one on pauses"),
        pytest.param((LONG,), {"itl_ms": None}, False, id="without a pace nobody knows how long is too long"),
        pytest.param((LONG,), {"best_effort": True}, False, id="best effort has no pace"),
        pytest.param((LONG,), {"itl_ms": 1.0}, False, id="behind its pace"),
        pytest.param((LONG,), {"itl_ms": None, "e2e_ms": 1e6}, True, id="ahead of the end it promised"),
        pytest.param((LONG,), {"itl_ms": None, "e2e_ms": 3e3}, False, id="just on its way to that end"),
    ],
)
def test_who_pauses(
    others: tuple[RequestState, ...], promise: Mapping[str, float | None], pauses: bool
) -> None:
    state = engine(far_ahead("r", **promise), decoding("tight", Tier.GOLD), *others)
    assert paused(plan_step(state, NOW, CTX), state) == ({"r"} if pauses else set())


def test_where_pausing_is_off_nobody_pauses() -> None:
    state = engine(far_ahead("r"), decoding("tight", Tier.GOLD), LONG)
    ctx = replace(CTX, policy=SchedulingPolicy(pause_decodes=False))
    assert paused(plan_step(state, NOW, ctx), state) == set()


def test_a_pause_is_time_for_prefill() -> None:
    crowd = [far_ahead(f"b{i}") for i in range(20)]
    state = engine(decoding("gold", Tier.GOLD), *crowd, LONG)
    ctx = DecisionContext(HEAVY)
    together = replace(ctx, policy=SchedulingPolicy(pause_decodes=False))
    assert (
        plan_step(state, NOW, ctx).prefill_budget_tokens
        > plan_step(state, NOW, together).prefill_budget_tokens + 100
    )


def test_a_batch_too_slow_for_gold_pauses_those_who_can_wait() -> None:
    """Nothing waits, all decode: 24 tokens take 15 ms, gold's pace allows 10."""
    gold = decoding("gold", Tier.GOLD)
    gold = replace(gold, slo=replace(gold.slo, itl_ms=10.0), first_token_ms=NOW - 90.0)
    state = engine(gold, *(far_ahead(f"b{i:02}") for i in range(23)))
    plan = plan_step(state, NOW, DecisionContext(HEAVY))
    going = 24 - len(paused(plan, state))
    assert "gold" not in plan.hold
    assert HEAVY.step_ms(decode_seqs=going) <= 10.0


@pytest.mark.parametrize(
    ("ahead_ms", "pausing", "admitted"),
    [
        pytest.param(2_000.0, True, True, id="those who are ahead pause for it"),
        pytest.param(2_000.0, False, False, id="where nobody pauses the batch is too slow for it"),
    ],
)
def test_gold_is_promised_what_pauses_make_room_for(ahead_ms: float, pausing: bool, admitted: bool) -> None:
    """Twenty bronze decode 13 ms a step, gold allows 10, and its first token is due in 120 ms."""
    crowd = [decoding(f"b{i}", Tier.BRONZE, done=100, ahead_ms=ahead_ms) for i in range(20)]
    gold = waiting("gold", Tier.GOLD, prompt=400, ttft=120)
    gold = replace(gold, slo=replace(gold.slo, itl_ms=10.0))
    ctx = DecisionContext(HEAVY, policy=SchedulingPolicy(pause_decodes=pausing))
    assert admit(gold, engine(*crowd), NOW, ctx).admitted is admitted


def test_a_first_token_is_predicted_sooner_beside_those_who_may_rest() -> None:
    def ttft_ms(ahead_ms: float) -> float:
        crowd = [decoding(f"b{i}", Tier.BRONZE, done=100, ahead_ms=ahead_ms) for i in range(20)]
        return admit(waiting("g", Tier.GOLD), engine(*crowd), NOW, DecisionContext(HEAVY)).prediction.ttft_ms

    assert ttft_ms(2_000.0) < 0.8 * ttft_ms(0.0)


@given(state=engines(), ctx=contexts)
def test_a_pause_is_never_longer_than_it_can_be_made_up_for(state: EngineState, ctx: DecisionContext) -> None:
    """Whoever pauses is due after this step and the next, however long a plan lets both get."""
    plan = plan_step(state, NOW, ctx)
    pausing = paused(plan, state)
    decodes = [r for r in state.requests if r.phase is Phase.DECODE and r.request_id in plan.running]
    assert not pausing or len(pausing) < len(decodes)
    fixed = ctx.model.step_ms(
        decode_seqs=len(decodes), decode_context_tokens=sum(r.computed_tokens for r in decodes)
    )
    longest = min(ctx.policy.max_step_ms, max(2 * fixed, 0.5 * ctx.forecast.tolerance_ms))
    for r in decodes:
        if r.request_id in pausing:
            assert next_token_deadline_ms(r) - NOW >= 2 * longest - 1e-6
            assert ahead_ms(r, NOW) > 0
            assert not r.slo.best_effort
            assert r.slo.max_jitter_ms is None


@given(
    paces=st.lists(st.floats(9.0, 120.0), min_size=2, max_size=24),
    prompts=st.lists(st.integers(50, 4_000), max_size=6),
)
def test_nobody_is_late_for_having_paused(paces: Sequence[float], prompts: Sequence[int]) -> None:
    """Steps as long as predicted: the token after a pause is in time, and every answer keeps its pace."""
    share = sum(HEAVY.per_decode_seq_ms / pace for pace in paces)
    if HEAVY.base_ms / min(paces) + share > 0.7:
        paces = [pace * 3 for pace in paces]
    decodes = {f"d{i:02}": with_lead(f"d{i:02}", pace) for i, pace in enumerate(paces)}
    prefills = {
        f"p{i}": replace(waiting(f"p{i}", Tier.BRONZE, prompt=prompt), phase=Phase.PREFILL)
        for i, prompt in enumerate(prompts)
    }
    now = NOW
    rested: set[str] = set()
    while decodes:
        state = engine(*decodes.values(), *prefills.values())
        plan = plan_step(state, now, DecisionContext(HEAVY, forecast=ForecastSnapshot((), 60.0)))
        now += _apply(plan, decodes, prefills)
        for name in set(decodes) - set(plan.hold):
            r = decodes[name]
            due = next_token_deadline_ms(r)
            last = r.output_tokens + 1 == r.expected_output_tokens
            if name in rested or last:
                assert now <= due + 1e-6, f"{name}, token {r.output_tokens}"
            if last:
                del decodes[name]
            else:
                decodes[name] = replace(
                    r, output_tokens=r.output_tokens + 1, computed_tokens=r.computed_tokens + 1
                )
        rested = paused(plan, state)


def with_lead(name: str, pace_ms: float) -> RequestState:
    """An answer at token 1 of 100, two tenths of a second ahead of its pace."""
    slo = RequestSlo("t/t", Rank(0), ttft_ms=1_000.0, itl_ms=pace_ms)
    return RequestState(name, slo, NOW - 50, Phase.DECODE, 100, 101, 1, 100, NOW + 200)


def _apply(plan: StepPlan, decodes: dict[str, RequestState], prefills: dict[str, RequestState]) -> float:
    """Compute the planned step; answers how long it takes."""
    computed, budget = 0, plan.prefill_budget_tokens
    going = sum(name not in plan.hold for name in decodes)
    for name in plan.running:
        r = prefills.get(name)
        if r is None or name in plan.hold or not budget:
            continue
        tokens = min(budget, r.prefill_left_tokens)
        budget -= tokens
        computed += tokens
        going += 1
        if tokens == r.prefill_left_tokens:
            del prefills[name]
        else:
            prefills[name] = replace(r, computed_tokens=r.computed_tokens + tokens)
    return HEAVY.step_ms(decode_seqs=going, prefill_tokens=computed)
