"""Who decodes no token in the coming step: those furthest ahead of their pace, while others need their time.

Promise: pure; names only decodes that stay on their way to every deadline if the step after this one brings
their token, however long the plan allows both to get; never all of them.

A token of somebody who is far ahead serves nobody now. Its time goes to prefill that wants more than the step
leaves, and to decodes that a step of all would make late.
"""

from collections.abc import Sequence

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.pace import ahead_ms, token_ms
from superinfer_core.scheduling.projection import STEPS_AHEAD, step_cap_ms
from superinfer_core.scheduling.slack import is_ahead, token_slack_ms
from superinfer_core.scheduling.state import RequestState, places_of


def paused(
    decodes: Sequence[RequestState],
    prefills: Sequence[RequestState],
    now_ms: float,
    ctx: DecisionContext,
) -> frozenset[str]:
    """Ids of those among `decodes` that pause; `prefills` may run in the step, most urgent first."""
    if not ctx.policy.pause_decodes or len(decodes) < 2:
        return frozenset()
    model = ctx.model
    context = sum(r.computed_tokens * r.places for r in decodes)
    fixed = model.step_ms(
        decode_seqs=places_of(decodes) + min(2, len(prefills)), decode_context_tokens=context
    )
    cap = step_cap_ms(ctx, fixed)
    wanted = sum(model.prefill_work_ms(r.prefill_left_tokens, r.computed_tokens) for r in prefills)
    excess = fixed + min(wanted, cap) - _tightest_ms(decodes, cap, now_ms, ctx)
    if not excess > 0:
        return frozenset()
    ahead = [(ahead_ms(r, now_ms), r) for r in decodes]
    patient = [(ms, r) for ms, r in ahead if ms >= STEPS_AHEAD * cap]
    patient.sort(key=lambda one: (-one[0], one[1].request_id))
    names: list[str] = []
    for _, r in patient[: len(decodes) - 1]:
        names.append(r.request_id)
        excess -= token_ms(r, r.computed_tokens, ctx)
        if not excess > 0:
            break
    return frozenset(names)


def _tightest_ms(
    decodes: Sequence[RequestState], cap_ms: float, now_ms: float, ctx: DecisionContext
) -> float:
    """How long the step may take by the tightest decode that a step of its own could still keep."""
    tightest = cap_ms
    for r in decodes:
        if is_ahead(r, cap_ms, now_ms):
            continue
        left = token_slack_ms(r, now_ms)
        if left >= ctx.model.base_ms + token_ms(r, r.computed_tokens, ctx):
            tightest = min(tightest, left * ctx.policy.token_margin)
    return tightest
