"""What a full engine can still promise: a place that running, less important work gives up in time.

Promise: pure. Agrees with `step.plan_step`, which displaces at the last moment that keeps the first token: what
is promised here finds its victim there, unless the victim ended first and its place is free anyway.
"""

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.slack import first_token_deadline_ms, needed_ms
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.scheduling.step import displaceable


def first_token_by_displacing_ms(
    candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext
) -> float | None:
    """Time until the candidate's first token, at its quantile, if it takes a place; None where it cannot.

    Waiting requests as important as the candidate displace before it: there must be a victim for each.
    """
    running = [r for r in state.requests if r.phase is not Phase.WAITING]
    if candidate.slo.ttft_ms is None or len(running) < state.max_num_seqs or ctx.policy.max_preemptions <= 0:
        return None
    before = [
        r
        for r in state.requests
        if r.phase is Phase.WAITING and r.first_token_ms is None and not r.slo.rank > candidate.slo.rank
    ]
    step_ms = ctx.model.step_ms(decode_seqs=len(running))
    victims = [r for r in running if displaceable(r, candidate, now_ms, step_ms, ctx)]
    if len(victims) <= len(before):
        return None
    factor = ctx.factor(ctx.policy.admission_quantile or candidate.slo.quantile)
    work_ms = sum(needed_ms(r, ctx) for r in (*before, candidate))
    soonest_ms = factor * (work_ms + step_ms * (1 + len(before)))
    left_ms = first_token_deadline_ms(candidate) - now_ms
    return max(soonest_ms, left_ms - 2 * step_ms)
