"""Who goes first: a total, deterministic order of requests.

Promise: the result is a permutation of the input that depends on the set of requests, not on their sequence.
"""

from collections.abc import Iterable
from math import inf, isnan

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.policy import Order
from superinfer_core.scheduling.slack import (
    end_deadline_ms,
    first_token_deadline_ms,
    needed_ms,
    slack_ms,
    slack_target_ms,
)
from superinfer_core.scheduling.state import RequestState

OrderKey = tuple[float | int | str, ...]


def order_key(r: RequestState, now_ms: float, ctx: DecisionContext) -> OrderKey:
    """Sort key of one request; smaller goes first.

    Slack order: savable before lost; then urgency bucket; then contracts that can still
    hold, less budget left first; then rank, arrival, id.
    """
    slo = r.slo
    rank = slo.rank
    kind = ctx.policy.order
    if kind is Order.SLACK and slo.best_effort and r.first_token_ms is None:
        # Nothing is due: no times to compute, and a long queue of these is put in order cheaply.
        last = ctx.policy.urgency.bucket(inf, inf)
        return (
            False,
            last,
            not slo.contract_holds,
            slo.budget_left,
            rank.tier_rank,
            rank.negated_priority,
            r.arrived_ms,
            r.request_id,
        )
    if kind is Order.SLACK:
        slack, shared = _slack_and_shared(r, now_ms, ctx)
        lost = slack < 0
        bucket = 0 if lost else ctx.policy.urgency.bucket(slack - shared, slack_target_ms(r))
        return (
            lost,
            bucket,
            not slo.contract_holds,
            slo.budget_left,
            rank.tier_rank,
            rank.negated_priority,
            r.arrived_ms,
            r.request_id,
        )
    if kind is Order.PRIORITY:
        return (rank.tier_rank, rank.negated_priority, r.arrived_ms, r.request_id)
    if kind is Order.EDF:
        due = min(first_token_deadline_ms(r), end_deadline_ms(r))
        if due == inf and r.slo.ttft_ms is not None and not isnan(r.slo.ttft_ms):
            due = r.arrived_ms + r.slo.ttft_ms
        return (due, r.arrived_ms, r.request_id)
    return (r.arrived_ms, r.request_id)


def _slack_and_shared(r: RequestState, now_ms: float, ctx: DecisionContext) -> tuple[float, float]:
    """Slack, and what urgency takes off it.

    Urgency counts `work_stretch` times the whole prefill, not what is left of it: progress must not cost a
    request its turn, or prefills of like slack take turns and all come late (least laxity first thrashes).
    """
    model, slo = ctx.model, r.slo
    whole = r.prompt_tokens + r.output_tokens
    shared = (
        ctx.policy.work_stretch
        * whole
        * (model.per_prefill_token_ms + 0.5 * model.per_prefill_context_token2_ms * whole)
    )
    need = needed_ms(r, ctx)
    if r.first_token_ms is None and slo.e2e_ms is None:  # the usual case, without the detours of slack_ms
        if slo.ttft_ms is None or slo.best_effort:
            return inf, 0.0
        return first_token_deadline_ms(r) - now_ms - need, shared - need
    return slack_ms(r, now_ms, ctx), shared - need


def order(requests: Iterable[RequestState], now_ms: float, ctx: DecisionContext) -> list[RequestState]:
    """`requests` in the order they should be served."""
    several = list(requests)
    if len(several) > 1:
        several.sort(key=lambda r: order_key(r, now_ms, ctx))
    return several
