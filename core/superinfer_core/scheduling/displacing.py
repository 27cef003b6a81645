"""What a full engine can still promise: places that running, less important work gives up.

Promise: pure. Agrees with `step.plan_step`, which displaces as soon as waiting for a place would cost the
first token: what is promised here finds its victims there, unless a place came free anyway.
"""

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.state import EngineState, Phase, RequestState, places_of
from superinfer_core.scheduling.step import displaceable, spare_after_resume_ms


def displaced_for(
    candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext
) -> EngineState | None:
    """The state once victims gave way to the candidate; None where they cannot.

    Waiting requests as important as the candidate displace before it: there must be places for each.
    """
    running = [r for r in state.requests if r.phase is not Phase.WAITING]
    taken = places_of(running)
    if candidate.slo.ttft_ms is None or taken < state.max_num_seqs or ctx.policy.max_preemptions <= 0:
        return None
    before = places_of(
        r
        for r in state.requests
        if r.phase is Phase.WAITING and r.first_token_ms is None and not r.slo.rank > candidate.slo.rank
    )
    step_ms = ctx.model.step_ms(decode_seqs=taken)
    victims = [r for r in running if displaceable(r, candidate, now_ms, step_ms, ctx)]
    victims.sort(key=lambda r: (-spare_after_resume_ms(r, candidate, now_ms, step_ms, ctx), r.request_id))
    short = before + candidate.places + taken - state.max_num_seqs
    gone: set[str] = set()
    for victim in victims:
        if short > 0:
            gone.add(victim.request_id)
            short -= victim.places
    if short > 0:
        return None
    return state.without(gone)
