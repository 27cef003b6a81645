"""Who must leave so that an urgent request finds a place and KV memory: the plan, repeated until it fits.

Promise: pure given its inputs; either the victims named make enough room, or nobody is named. Every victim is
the core's choice (never more important, displaced at most as often as the policy allows).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.state import EngineState, Phase
from superinfer_core.scheduling.step import StepPlan, plan_step

MAX_VICTIMS_PER_STEP: Final = 8
"""Bounds the work of one step; an urgent request that needs more is served by the next steps."""


def plan_with_room(
    state: EngineState,
    now_ms: float,
    ctx: DecisionContext,
    *,
    free_tokens: int,
    needed_tokens: Callable[[str], int],
    freed_tokens: Callable[[str], int],
) -> StepPlan:
    """The step's plan, in which a full KV cache counts as a full batch.

    Args:
        state: the engine.
        now_ms: now.
        ctx: see the core.
        free_tokens: KV tokens nobody holds.
        needed_tokens: KV tokens a waiting request needs to enter.
        freed_tokens: KV tokens that come free when a running request leaves.
    """
    plan = plan_step(state, now_ms, ctx)
    if not plan.waiting or ctx.policy.max_preemptions <= 0:
        return plan
    head, victims = plan.waiting[0], list(plan.preempt)
    short = needed_tokens(head) - free_tokens - sum(freed_tokens(p.victim_id) for p in victims)
    if short <= 0:
        return plan
    trial = state.without([victim.victim_id for victim in victims])
    while short > 0 and len(victims) < MAX_VICTIMS_PER_STEP:
        in_batch = sum(1 for r in trial.requests if r.phase is not Phase.WAITING)
        if not in_batch:
            break
        more = plan_step(replace(trial, max_num_seqs=in_batch), now_ms, ctx).preempt
        if not more or more[0].for_id != head:
            break
        victims.append(more[0])
        short -= freed_tokens(more[0].victim_id)
        trial = trial.without([more[0].victim_id])
    if short > 0:  # nobody loses a place for nothing
        return replace(plan, preempt=())
    return replace(plan_step(trial, now_ms, ctx), preempt=tuple(victims))
