"""The plan of one engine step: who gets tokens, how much prefill, who gives way.

Promise: pure; a plan names only requests of the state; a victim is never more important than the one it
gives way to, was displaced less often than the policy allows, and keeps its own deadline by prediction (or
has none to keep).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.order import order
from superinfer_core.scheduling.pace import decoding_ms, pace_ms
from superinfer_core.scheduling.pausing import paused
from superinfer_core.scheduling.policy import Order
from superinfer_core.scheduling.projection import LEAST_PREFILL_SHARE, step_cap_ms
from superinfer_core.scheduling.slack import (
    is_ahead,
    needed_ms,
    pace_deadline_ms,
    slack_ms,
    token_slack_ms,
    tokens_left,
)
from superinfer_core.scheduling.state import EngineState, Phase, RequestState, places_of

DISPLACING_HEAD: Final = 4
"""How far into the queue a request may stand and still displace: bounds the time of a plan."""


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
        hold: members of the batch that compute nothing this step: prefills whose chunk a waiting request
            takes, decodes that pause (`pausing`).
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
    free = state.max_num_seqs - places_of(r for r in running if r.request_id not in gone)
    entering = ahead[: max(0, free)]
    pausing = paused(decodes, (*prefills, *entering), now_ms, ctx)
    going = [r for r in decodes if r.request_id not in pausing]
    budget, hold = _chunks(prefills, entering, state, going, now_ms, ctx)
    return StepPlan(
        preempt,
        (*(r.request_id for r in decodes), *(r.request_id for r in prefills)),
        (*hold, *sorted(pausing)),
        _entering(ahead, preempt),
        budget,
    )


def _entering(ahead: list[RequestState], preempt: tuple[Preempt, ...]) -> tuple[str, ...]:
    """The queue, whoever displaced somebody first: the place was made for it."""
    displacing = [p.for_id for p in preempt]
    return (*displacing, *(r.request_id for r in ahead if r.request_id not in displacing))


def prefill_time_ms(decodes: list[RequestState], prefills: int, now_ms: float, ctx: DecisionContext) -> float:
    """Time a step may spend on prefill: what the tightest running token deadline leaves after decoding.

    That is the least token slack less the time to decode. A sequence that cannot be kept even by bare decode
    steps does not count: it must not stop everyone else's prefill. `prefills` sequences share the step.
    """
    policy, model = ctx.policy, ctx.model
    context = sum(r.computed_tokens * r.places for r in decodes)
    fixed = model.step_ms(decode_seqs=places_of(decodes) + max(1, prefills), decode_context_tokens=context)
    may_take = step_cap_ms(ctx, fixed)
    for r in decodes:
        if is_ahead(r, may_take, now_ms):
            continue
        left = token_slack_ms(r, now_ms)
        if left < fixed and not _can_be_kept(r, decodes, fixed, now_ms, ctx):
            continue
        left *= policy.token_margin
        if left < may_take:
            may_take = left
    for r in decodes:
        if r.slo.max_jitter_ms is not None:
            may_take = min(may_take, fixed + r.slo.max_jitter_ms)
    return max(LEAST_PREFILL_SHARE * fixed, may_take - fixed)


def _can_be_kept(
    r: RequestState, decodes: Sequence[RequestState], step_ms: float, now_ms: float, ctx: DecisionContext
) -> bool:
    """Whether steps of bare decoding keep the pace of `r`: of everyone, or of whoever has to in turns."""
    pace = pace_ms(r, now_ms)
    return pace >= step_ms or (ctx.policy.pause_decodes and pace >= decoding_ms(decodes, pace, now_ms, ctx))


def _chunks(
    prefills: list[RequestState],
    entering: list[RequestState],
    state: EngineState,
    decodes: list[RequestState],
    now_ms: float,
    ctx: DecisionContext,
) -> tuple[int, tuple[str, ...]]:
    """(prompt tokens of the step, running prefills that are held).

    Time is spent in serving order over running and waiting prefills. The engine gives chunks to running
    ones first, so one that comes after a waiting request is held while that request can use the step;
    tokens then add up in the engine's own sequence, each at the price of its context.
    """
    most = max(0, state.max_step_tokens - places_of(decodes))
    if not prefills and not entering:
        return most, ()
    if not ctx.policy.step_budget:
        return most, ()
    model = ctx.model
    ms = prefill_time_ms(decodes, min(2, len(prefills) + len(entering)), now_ms, ctx)
    hold: list[str] = []
    if prefills and entering:
        ids = {r.request_id for r in entering}
        passed, left = False, ms
        for r in order((*prefills, *entering), now_ms, ctx):
            if r.request_id in ids:
                passed = passed or left > 0
                left -= model.prefill_work_ms(r.prefill_left_tokens, r.computed_tokens)
            elif passed:
                hold.append(r.request_id)
            else:
                left -= model.prefill_work_ms(r.prefill_left_tokens, r.computed_tokens)
    tokens, left = 0.0, ms
    for r in (*(p for p in prefills if p.request_id not in hold), *entering):
        wanted = r.prefill_left_tokens
        within = model.prefill_tokens_within(left, r.computed_tokens)
        if within < wanted:
            tokens += within
            break
        tokens += wanted
        left -= model.prefill_work_ms(wanted, r.computed_tokens)
    floor = ctx.policy.min_prefill_tokens if not decodes or tokens > 0 else 0
    return int(min(most, max(tokens, floor, 0 if decodes else 1))), tuple(hold)


def _preemptions(
    state: EngineState,
    running: list[RequestState],
    ahead: list[RequestState],
    now_ms: float,
    ctx: DecisionContext,
) -> tuple[Preempt, ...]:
    """At most one displacement per step: for the first in the queue that would miss by waiting."""
    if (
        not ahead
        or not running
        or ctx.policy.max_preemptions <= 0
        or state.running_places < state.max_num_seqs
    ):
        return ()
    step = ctx.model.step_ms(decode_seqs=state.running_places)
    # A place comes free when the shortest answer ends; waiting is cheaper than computing a victim again.
    free_in = 2 * step * min((tokens_left(r) for r in running if r.phase is Phase.DECODE), default=inf)
    lowest = max((r.slo.rank.tier_rank, r.slo.rank.negated_priority) for r in running)
    for head in ahead[:DISPLACING_HEAD]:
        rank = head.slo.rank
        if head.first_token_ms is not None or (rank.tier_rank, rank.negated_priority) >= lowest:
            continue
        slack = slack_ms(head, now_ms, ctx)
        spare = slack - needed_ms(head, ctx)
        if slack < 0 or spare > free_in + 2 * step:
            continue
        victim = _victim(running, head, now_ms, step, ctx)
        if victim is not None:
            return (Preempt(victim.request_id, head.request_id),)
    return ()


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
    """Whether `r` may give its place to `head`: less important, and kept all the same when it resumes."""
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
