"""Pace: the time per token that keeps a promise, and what share of the engine's steps it takes.

Promise: pure and total. A request whose pace is slower than the steps are needs a token in some of them only;
in the others it may pause (`pausing`). Where pausing is switched off, everyone decodes in every step.
"""

from collections.abc import Iterable
from math import inf

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.slack import (
    end_deadline_ms,
    lead_ms,
    next_token_deadline_ms,
    pace_deadline_ms,
    tokens_left,
)
from superinfer_core.scheduling.state import Phase, RequestState


def own_pace_ms(r: RequestState) -> float:
    """Time per token a request that has not started allows its decode: by ITL, and by E2E after TTFT."""
    slo = r.slo
    if slo.best_effort:
        return inf
    pace = slo.itl_ms if slo.itl_ms is not None else inf
    if slo.e2e_ms is not None:
        rest = slo.e2e_ms - (slo.ttft_ms or 0.0)
        pace = min(pace, rest / max(1, r.expected_output_tokens - 1))
    return pace


def pace_ms(r: RequestState, now_ms: float) -> float:
    """Time per token that still keeps the promise: of what is left, or of the whole before it decodes."""
    if r.phase is not Phase.DECODE:
        return own_pace_ms(r)
    return (pace_deadline_ms(r) - now_ms) / tokens_left(r)


def never_pauses(r: RequestState) -> bool:
    """Whether `r` decodes in every step.

    Without a promise nobody knows how long a pause is too long, and a bound on jitter is one on pauses.
    """
    return r.slo.best_effort or r.slo.max_jitter_ms is not None


def ahead_ms(r: RequestState, now_ms: float) -> float:
    """How long a decoding request can do without its next token and still be on its way to every deadline.

    E2E counts as a pace from the first token to the end. Minus infinite for whoever never pauses.
    """
    if r.first_token_ms is None or never_pauses(r):
        return -inf
    due = next_token_deadline_ms(r)
    end = end_deadline_ms(r)
    if end != inf:
        share = max(1, r.output_tokens) / max(1, r.expected_output_tokens - 1)
        due = min(due, r.first_token_ms + share * (end - r.first_token_ms))
    return due - lead_ms(r) - now_ms if due < inf else -inf


def steps_share(r: RequestState, step_ms: float, now_ms: float) -> float:
    """Share of steps of `step_ms` in which `r` has to decode to keep its pace."""
    if never_pauses(r):
        return 1.0
    pace = pace_ms(r, now_ms)
    return step_ms / pace if 0 < step_ms < pace < inf else 1.0


def token_ms(r: RequestState, context_tokens: float, ctx: DecisionContext) -> float:
    """What a token of every choice of `r` adds to a step, after `context_tokens` of each."""
    model = ctx.model
    return r.places * (model.per_decode_seq_ms + model.per_decode_context_token_ms * context_tokens)


def decoding_ms(
    requests: Iterable[RequestState],
    step_ms: float,
    now_ms: float,
    ctx: DecisionContext,
    *,
    grown: float = 0.0,
) -> float:
    """Decoding in a step of `step_ms` of a batch of `requests`, each in the share of steps its pace needs.

    `grown`: how far answers are on their way from where they stand to their end; contexts grow.
    """
    took = ctx.model.base_ms
    for r in requests:
        output = r.output_tokens + grown * (r.expected_output_tokens - r.output_tokens)
        share = steps_share(r, step_ms, now_ms) if ctx.policy.pause_decodes else 1.0
        took += share * token_ms(r, r.prompt_tokens + output, ctx)
    return took
