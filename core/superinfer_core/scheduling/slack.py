"""Deadlines and slack of one request.

Promise: pure and total; infinite where nothing is promised. Milliseconds on the caller's monotonic clock.

A request keeps its ITL when (last - first token) / (n - 1) is within the target, so token k (from 0) is due
at first + k * target: time won on earlier tokens pays for later ones, and time lost can be made up while
tokens remain.
"""

from math import inf, isnan
from typing import Final

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.state import Phase, RequestState

_DECODE_SHARE = 1.5
"""Predicted step of an E2E estimate over the bare decode step: prefill of others shares the steps."""


def _known(due_ms: float) -> float:
    """What is not a number is no deadline: garbage must never be the most urgent."""
    return inf if isnan(due_ms) else due_ms


def first_token_deadline_ms(r: RequestState) -> float:
    """When the first token is due; infinite once it is out, or where nothing is promised."""
    slo = r.slo
    if slo.best_effort or slo.ttft_ms is None or r.first_token_ms is not None:
        return inf
    return _known(r.arrived_ms + slo.ttft_ms)


def next_token_deadline_ms(r: RequestState) -> float:
    """When the next token is due by its ITL; infinite before the first token."""
    slo = r.slo
    if slo.best_effort or slo.itl_ms is None or r.first_token_ms is None:
        return inf
    return _known(r.first_token_ms + max(1, r.output_tokens) * slo.itl_ms)


def end_deadline_ms(r: RequestState) -> float:
    """When the last token is due by E2E; infinite where nothing is promised."""
    slo = r.slo
    if slo.best_effort or slo.e2e_ms is None:
        return inf
    return _known(r.arrived_ms + slo.e2e_ms)


def pace_deadline_ms(r: RequestState) -> float:
    """When the last expected token is due, by ITL over the whole answer and by E2E: the earlier."""
    due = end_deadline_ms(r)
    slo = r.slo
    if r.first_token_ms is not None and slo.itl_ms is not None and not slo.best_effort:
        due = min(due, _known(r.first_token_ms + (max(2, r.expected_output_tokens) - 1) * slo.itl_ms))
    return due


def tokens_left(r: RequestState) -> int:
    """Tokens still expected, at least one."""
    return max(1, r.expected_output_tokens - r.output_tokens)


LEAD_TOKENS: Final = 1.0
LEAD_SHARE: Final = 0.08
"""How far ahead of its pace a plan keeps a request: a share of the tokens that are out, at most one token.

Whoever is planned to be just in time is late by whatever its last step takes longer than predicted.
"""


def lead_ms(r: RequestState) -> float:
    """How much earlier than it is due a plan brings the next token."""
    slo = r.slo
    if slo.itl_ms is None or r.first_token_ms is None:
        return 0.0
    lead = min(LEAD_TOKENS, LEAD_SHARE * r.output_tokens) * slo.itl_ms
    return lead if lead < inf else 0.0


def token_slack_ms(r: RequestState, now_ms: float) -> float:
    """How long the step that brings the next token may take; may be negative.

    Ahead of its pace a request may spend all it has won. Behind it, it gets the time per token that still
    makes the last one due (`pace_deadline_ms`), so that one late token does not stop all prefill at once.
    Either way it is planned to be a little early (`lead_ms`). E2E bounds the pace from the start.
    """
    lead = lead_ms(r)
    next_due = next_token_deadline_ms(r) - lead - now_ms
    left = tokens_left(r)
    end = end_deadline_ms(r)
    slo = r.slo
    if next_due != inf and slo.itl_ms is not None and next_due < slo.itl_ms:
        next_due = max(next_due, (pace_deadline_ms(r) - lead - now_ms) / left)
    if end == inf:
        return next_due
    return min(next_due, (end - now_ms) / left)


def is_ahead(r: RequestState, by_ms: float, now_ms: float) -> bool:
    """Whether a decode is ahead of its pace by more than `by_ms`: the usual case, told cheaply."""
    slo, first = r.slo, r.first_token_ms
    if slo.e2e_ms is not None or slo.itl_ms is None or first is None:
        return False
    return first + (r.output_tokens - LEAD_TOKENS) * slo.itl_ms - now_ms > by_ms


def needed_ms(r: RequestState, ctx: DecisionContext, chunk_tokens: int = 2048) -> float:
    """Predicted time until the next token of a request that runs at once and alone."""
    if r.phase is Phase.DECODE:
        return ctx.model.step_ms(decode_seqs=1, decode_context_tokens=r.computed_tokens)
    model, left, computed = ctx.model, r.prefill_left_tokens, r.computed_tokens
    if left > chunk_tokens:
        return model.prefill_ms(left, context_tokens=computed, chunk_tokens=chunk_tokens)
    return (
        model.base_ms
        + model.per_decode_seq_ms
        + left * (model.per_prefill_token_ms + model.per_prefill_context_token2_ms * (computed + 0.5 * left))
    )


def slack_ms(r: RequestState, now_ms: float, ctx: DecisionContext) -> float:
    """Deadline less now less the time still needed: the least over TTFT, resumed pace and E2E.

    Infinite without any.
    A request whose first token is out counts by its pace only while it waits to come back after a preemption.
    """
    need = needed_ms(r, ctx)
    slack = first_token_deadline_ms(r) - now_ms - need
    waiting_again = r.first_token_ms is not None and r.phase is not Phase.DECODE
    if r.slo.e2e_ms is not None or waiting_again:
        rest = (tokens_left(r) - 1) * _DECODE_SHARE * ctx.model.step_ms(decode_seqs=8)
        due = pace_deadline_ms(r) if waiting_again else end_deadline_ms(r)
        slack = min(slack, due - now_ms - need - rest)
    return slack


def slack_target_ms(r: RequestState) -> float:
    """What slack is a fraction of: TTFT before the first token, else E2E, else the pace of the answer."""
    slo = r.slo
    if slo.ttft_ms is not None and r.first_token_ms is None:
        return slo.ttft_ms
    if slo.e2e_ms is not None:
        return slo.e2e_ms
    if slo.itl_ms is not None:
        return slo.itl_ms * max(1, r.expected_output_tokens)
    return inf
