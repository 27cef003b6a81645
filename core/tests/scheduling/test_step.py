"""The plan of a step: token deadlines hold, nobody is named twice, victims can afford it."""

from hypothesis import given
from scheduling_cases import CTX, MODEL, NOW, contexts, decoding, engine, engines, waiting

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.policy import Order
from superinfer_core.scheduling.state import EngineState, Phase
from superinfer_core.scheduling.step import plan_step, spare_after_resume_ms
from superinfer_core.slo import Tier


@given(state=engines(), ctx=contexts)
def test_a_plan_names_everyone_once_and_stays_within_the_engine(
    state: EngineState, ctx: DecisionContext
) -> None:
    plan = plan_step(state, NOW, ctx)
    by_id = {r.request_id: r for r in state.requests}
    gone = {p.victim_id for p in plan.preempt}
    running = {i for i, r in by_id.items() if r.phase is not Phase.WAITING}
    assert sorted(plan.running) == sorted(running - gone)
    assert sorted(plan.waiting) == sorted(set(by_id) - running)
    assert set(plan.hold) <= set(plan.running)
    assert all(not by_id[i].slo.best_effort for i in plan.hold if by_id[i].phase is Phase.DECODE)
    assert 0 <= plan.prefill_budget_tokens <= state.max_step_tokens


@given(state=engines(), ctx=contexts)
def test_a_victim_is_less_important_not_worn_out_and_keeps_its_deadline(
    state: EngineState, ctx: DecisionContext
) -> None:
    by_id = {r.request_id: r for r in state.requests}
    step = ctx.model.step_ms(decode_seqs=sum(r.phase is not Phase.WAITING for r in state.requests))
    for p in plan_step(state, NOW, ctx).preempt:
        assert ctx.policy.order is Order.SLACK
        victim, head = by_id[p.victim_id], by_id[p.for_id]
        assert victim.phase is not Phase.WAITING
        assert head.phase is Phase.WAITING
        assert victim.slo.rank > head.slo.rank
        assert victim.preemptions < ctx.policy.max_preemptions
        assert victim.slo.rank.sheddable or spare_after_resume_ms(victim, head, NOW, step, ctx) >= 0


def test_a_long_prompt_never_makes_the_tightest_token_late() -> None:
    state = engine(
        decoding("gold", Tier.GOLD), *(waiting(f"b{i}", Tier.BRONZE, prompt=4000) for i in range(5))
    )
    plan = plan_step(state, NOW, CTX)
    step = MODEL.step_ms(decode_seqs=2, prefill_tokens=plan.prefill_budget_tokens)
    assert 0 < plan.prefill_budget_tokens < 2048
    assert step <= 20.4


def test_slack_won_on_earlier_tokens_pays_for_more_prefill() -> None:
    long = waiting("b", Tier.BRONZE, prompt=4000)
    tight = plan_step(engine(decoding("g", Tier.GOLD), long), NOW, CTX)
    ahead = plan_step(engine(decoding("g", Tier.GOLD, ahead_ms=40), long), NOW, CTX)
    assert ahead.prefill_budget_tokens > 2 * tight.prefill_budget_tokens


def test_a_sequence_that_is_lost_does_not_stop_prefill() -> None:
    lost = decoding("g", Tier.GOLD, done=190, total=200, ahead_ms=-5000)
    plan = plan_step(engine(lost, waiting("b", Tier.BRONZE)), NOW, CTX)
    assert plan.prefill_budget_tokens >= 500


def test_an_idle_engine_may_fill_its_step() -> None:
    assert plan_step(engine(), NOW, CTX).prefill_budget_tokens == 2048


def test_a_waiting_gold_takes_the_chunk_of_a_running_bronze_prefill() -> None:
    from dataclasses import replace

    bronze = replace(waiting("bronze", Tier.BRONZE, prompt=4000), phase=Phase.PREFILL, computed_tokens=100)
    plan = plan_step(engine(decoding("s", Tier.SILVER), bronze, waiting("gold", Tier.GOLD)), NOW, CTX)
    assert plan.hold == ("bronze",)
    assert plan.waiting == ("gold",)


def test_in_a_full_batch_gold_displaces_bronze_with_slack_not_silver_without() -> None:
    full = engine(
        decoding("silver", Tier.SILVER, done=50, total=1000),
        decoding("bronze", Tier.BRONZE, done=50, total=1000, ahead_ms=5000),
        waiting("gold", Tier.GOLD),
        places=2,
    )
    (preempt,) = plan_step(full, NOW, CTX).preempt
    assert (preempt.victim_id, preempt.for_id) == ("bronze", "gold")
