"""The plan of one engine step: who gets tokens, how much prefill, who gives way.

Promise: pure; a plan names only requests of the state; a victim is never more important than the one it gives way to,
was displaced less often than the policy allows, and keeps its own deadline by prediction (or has none to keep).
"""

from dataclasses import dataclass
from math import inf

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.order import order
from superinfer_core.scheduling.policy import Order
from superinfer_core.scheduling.slack import (
    needed_ms,
    pace_deadline_ms,
    slack_ms,
    token_slack_ms,
    tokens_left,
)
from superinfer_core.scheduling.state import EngineState, Phase, RequestState


@dataclass(frozen=True, slots=True)
class Preempt:
    """`victim_id` leaves the batch for `for_id`."""

    victim_id: str
    for_id: str


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the engine should do next.

    Attributes:
        preempt: who leaves the batch, for whom.
        running: members of the batch in the order they get tokens (decodes first).
        hold: running prefills that get no chunk this step: a waiting request takes it.
        waiting: everything else in the order it may enter.
        prefill_budget_tokens: prompt tokens the step may compute, over running and newly entered requests.
    """

    preempt: tuple[Preempt, ...]
    running: tuple[str, ...]
    hold: tuple[str, ...]
    waiting: tuple[str, ...]
    prefill_budget_tokens: int


def plan_step(state: EngineState, now_ms: float, ctx: DecisionContext) -> StepPlan:
    """The plan of the step that starts at `now_ms`."""
    running = [r for r in state.requests if r.phase is not Phase.WAITING]
    waiting = [r for r in state.requests if r.phase is Phase.WAITING]
    ahead = order(waiting, now_ms, ctx)
    if ctx.policy.order is not Order.SLACK:
        return StepPlan(
            (),
            tuple(r.request_id for r in running),
            (),
            tuple(r.request_id for r in ahead),
            state.max_step_tokens,
        )
    preempt = _preemptions(state, running, ahead, now_ms, ctx)
    gone = {p.victim_id for p in preempt}
    decodes = [r for r in running if r.phase is Phase.DECODE and r.request_id not in gone]
    prefills = order(
        (r for r in running if r.phase is Phase.PREFILL and r.request_id not in gone), now_ms, ctx
    )
    budget = prefill_budget(decodes, prefills, ahead, state, now_ms, ctx)
    free = state.max_num_seqs - len(running) + len(gone)
    ahead = _may_enter(ahead, free, state.max_num_seqs, ctx)
    hold = _held(prefills, ahead, free, budget, now_ms, ctx)
    return StepPlan(
        preempt,
        (*(r.request_id for r in decodes), *(r.request_id for r in prefills)),
        hold,
        tuple(r.request_id for r in ahead),
        budget,
    )


def _may_enter(
    ahead: list[RequestState], free: int, places: int, ctx: DecisionContext
) -> list[RequestState]:
    """Those of `ahead` that leave the last places to higher ranks expected soon."""
    most = ctx.policy.entry_places
    if most <= 0 or free > most + len(ahead):
        return ahead
    allowed = []
    for r in ahead:
        if len(allowed) >= free or free - len(allowed) > ctx.forecast.kept_free(r.slo.rank, most, places):
            allowed.append(r)
    return allowed


def prefill_budget(
    decodes: list[RequestState],
    prefills: list[RequestState],
    ahead: list[RequestState],
    state: EngineState,
    now_ms: float,
    ctx: DecisionContext,
) -> int:
    """Prompt tokens of a step: what the tightest running token deadline leaves after the decodes' own time."""
    policy, model = ctx.policy, ctx.model
    most = max(0, state.max_step_tokens - len(decodes))
    if not policy.step_budget:
        return most
    context = sum(r.computed_tokens for r in decodes)
    fixed = model.step_ms(decode_seqs=len(decodes) + 1, decode_context_tokens=context)
    may_take = min(policy.max_step_ms, max(2 * fixed, policy.arrival_share * ctx.forecast.tolerance_ms))
    for r in decodes:
        left = token_slack_ms(r, now_ms)
        if left < fixed and (pace_deadline_ms(r) - now_ms) / tokens_left(r) < fixed:
            continue  # cannot be kept even without prefill: it must not stop everyone else's
        may_take = min(may_take, max(fixed, policy.token_margin * left))
        if r.slo.max_jitter_ms is not None:
            may_take = min(may_take, fixed + r.slo.max_jitter_ms)
    first = prefills[0] if prefills else (ahead[0] if ahead else None)
    tokens = model.prefill_tokens_within(may_take - fixed, first.computed_tokens if first else 0)
    floor = 1 if not decodes else 0
    if tokens < policy.min_prefill_tokens and (not decodes or tokens > 0):
        tokens = max(tokens, policy.min_prefill_tokens)
    return int(max(floor, min(most, tokens)))


def _held(
    prefills: list[RequestState],
    ahead: list[RequestState],
    places: int,
    budget: int,
    now_ms: float,
    ctx: DecisionContext,
) -> tuple[str, ...]:
    """Running prefills that come after waiting requests able to use the whole budget."""
    if not prefills or not ahead or places <= 0:
        return ()
    merged = order((*prefills, *ahead[:places]), now_ms, ctx)
    waiting = {r.request_id for r in ahead}
    held, left, passed = [], budget, False
    for r in merged:
        if r.request_id in waiting:
            passed = True
        elif passed:
            held.append(r.request_id)
            continue
        left -= r.prefill_left_tokens
        if left <= 0:
            break
    else:
        return tuple(held)
    done = {r.request_id for r in merged[: merged.index(r) + 1]}
    return tuple(p.request_id for p in prefills if p.request_id in held or p.request_id not in done)


def _preemptions(
    state: EngineState,
    running: list[RequestState],
    ahead: list[RequestState],
    now_ms: float,
    ctx: DecisionContext,
) -> tuple[Preempt, ...]:
    """At most one displacement per step: the waiting head's, when it would miss by waiting for a place."""
    if not ahead or ctx.policy.max_preemptions <= 0 or len(running) < state.max_num_seqs:
        return ()
    head = ahead[0]
    if head.first_token_ms is not None:
        return ()
    slack = slack_ms(head, now_ms, ctx)
    step = ctx.model.step_ms(decode_seqs=len(running))
    # As much earlier as its own work may take longer than expected: admission promised it at that quantile.
    longer = (ctx.factor(ctx.policy.admission_quantile or head.slo.quantile) - 1.0) * needed_ms(head, ctx)
    if slack < 0 or slack > 3 * step + max(0.0, longer):
        return ()
    victim = _victim(running, head, now_ms, step, ctx)
    return (Preempt(victim.request_id, head.request_id),) if victim is not None else ()


def _victim(
    running: list[RequestState], head: RequestState, now_ms: float, step_ms: float, ctx: DecisionContext
) -> RequestState | None:
    best: tuple[float, str] | None = None
    chosen = None
    for r in running:
        if not displaceable(r, head, now_ms, step_ms, ctx):
            continue
        key = (-spare_after_resume_ms(r, head, now_ms, step_ms, ctx), r.request_id)
        if best is None or key < best:
            best, chosen = key, r
    return chosen


def displaceable(
    r: RequestState, head: RequestState, now_ms: float, step_ms: float, ctx: DecisionContext
) -> bool:
    """Whether running `r` may give its place to `head`: less important, and kept all the same when it resumes."""
    if not r.slo.rank > head.slo.rank or r.preemptions >= ctx.policy.max_preemptions:
        return False
    return spare_after_resume_ms(r, head, now_ms, step_ms, ctx) >= 0 or r.slo.rank.sheddable


def spare_after_resume_ms(
    victim: RequestState, head: RequestState, now_ms: float, step_ms: float, ctx: DecisionContext
) -> float:
    """Slack `victim` would have left if it gave way to `head` now and computed everything again."""
    due = min(pace_deadline_ms(victim), victim.arrived_ms + (victim.slo.ttft_ms or inf))
    if victim.first_token_ms is not None or victim.slo.best_effort:
        due = pace_deadline_ms(victim)
    again = ctx.model.prefill_work_ms(victim.prompt_tokens + victim.output_tokens)
    meanwhile = ctx.model.prefill_work_ms(head.prefill_left_tokens, head.computed_tokens)
    return due - now_ms - 3 * (again + meanwhile) - 2 * step_ms * tokens_left(victim)
