"""Room kept from a request for others: for higher ranks that are expected, and for the pace of who is there.

Promise: pure; an empty engine is kept for nobody, and nothing is kept for ranks that stopped coming.
"""

from math import inf
from typing import Final

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import work_of
from superinfer_core.scheduling.pace import decoding_ms, pace_ms
from superinfer_core.scheduling.state import EngineState, RequestState

HALF_GROWN: Final = 0.5
"""Pace is judged at half of what is left of every answer: contexts grow, and a batch of long ones is slow
however few its places."""

LEAST_SIZE: Final = 0.25
"""Beside the usual request of its rank even the smallest counts for so much."""

OVERSIZE_PLACES: Final = 8.0
"""Places that a request of twice the usual size must find free beyond its own; a larger one no more, so that
nobody is refused for its size beside an engine that has room."""

LEAST_STEP_SHARE: Final = 0.05
"""Of a step of the tightest expected pace, what even the lowest rank may have."""


def crowds_out(candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext) -> bool:
    """Whether the candidate would take room that others need: pace, or places of higher ranks expected."""
    return (
        _outpaces(candidate, state, now_ms, ctx)
        or _slows(candidate, state, now_ms, ctx)
        or _takes_places(candidate, state, ctx)
    )


def _outpaces(candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext) -> bool:
    """Whether the batch with the candidate would decode too slowly for the higher ranks that are expected.

    Their work of lately, less what of it is in the batch already, is kept free in a step of the tightest
    pace among them.
    """
    rank = candidate.slo.rank
    tightest = ctx.forecast.tightest_ms(rank)
    if not state.requests or tightest == inf:
        return False
    higher = [r for r in state.requests if r.slo.rank < rank]
    present = (decoding_ms(higher, tightest, now_ms, ctx, grown=HALF_GROWN) - ctx.model.base_ms) / tightest
    missing = ctx.forecast.above(rank)[0] + max(0.0, ctx.forecast.decode_above(rank) - present)
    longest = tightest * max(
        LEAST_STEP_SHARE, 1.0 / _factor(candidate, ctx) - ctx.policy.reserve_load * missing
    )
    there = decoding_ms(state.requests, tightest, now_ms, ctx, grown=HALF_GROWN)
    own = decoding_ms((candidate,), tightest, now_ms, ctx, grown=HALF_GROWN) - ctx.model.base_ms
    return there + own * max(LEAST_SIZE, 1.0 + _oversize(candidate, state, ctx)) > longest


def _oversize(candidate: RequestState, state: EngineState, ctx: DecisionContext) -> float:
    """What the candidate is beyond the usual of its rank, weighted; negative for a small one.

    Where room is short it goes to small requests: they keep more promises in the same time.
    """
    work, hold = work_of(candidate, ctx.model, state.max_num_seqs)
    return ctx.policy.size_weight * (ctx.forecast.size(candidate.slo.rank, work, hold) - 1.0)


def _slows(candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext) -> bool:
    """Whether the tightest pace there could be kept without the candidate, and not with it.

    Prefill of ranks no lower than the candidate's goes on meanwhile: a batch that decodes in all of its time
    starves whoever was admitted with it. A pace no step is short enough for is lost, and protects nobody.
    """
    if not ctx.policy.pause_decodes:
        return False
    paces = (pace_ms(r, now_ms) for r in state.requests)
    tightest = min((pace for pace in paces if pace > ctx.model.base_ms), default=inf)
    if tightest == inf:
        return False
    prefill = ctx.policy.reserve_load * ctx.forecast.down_to(candidate.slo.rank)
    allowed = tightest * max(LEAST_STEP_SHARE, 1.0 / _factor(candidate, ctx) - prefill)
    if decoding_ms(state.requests, tightest, now_ms, ctx) > allowed:
        return False
    return decoding_ms((*state.requests, candidate), tightest, now_ms, ctx) > allowed


def _factor(candidate: RequestState, ctx: DecisionContext) -> float:
    return ctx.factor(ctx.policy.admission_quantile or candidate.slo.quantile)


def _takes_places(candidate: RequestState, state: EngineState, ctx: DecisionContext) -> bool:
    """Whether too few places would be left for the higher ranks that are expected."""
    policy, slo = ctx.policy, candidate.slo
    rank = slo.rank
    expected = policy.reserve_places * ctx.forecast.above(rank)[1]
    if expected <= 0:
        return False
    key = (rank.tier_rank, rank.negated_priority)
    below = sum(
        r.places for r in state.requests if (r.slo.rank.tier_rank, r.slo.rank.negated_priority) >= key
    )
    room = candidate.places + OVERSIZE_PLACES * min(1.0, _oversize(candidate, state, ctx))
    if not slo.contract_holds:
        room += policy.broken_weight
    room += policy.triage_weight * (ctx.forecast.mean_budget_left(rank) - slo.budget_left)
    return below > 0 and below + max(0.0, room) > state.max_num_seqs - expected
