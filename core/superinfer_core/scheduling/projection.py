"""Where an engine's backlog leads: a fluid rollout of its batch under the step budget.

Promise: deterministic and bounded (O(n log n) in the requests); needs no clock. It is what admission believes, so it
errs late: prefill gets only the time the tightest pace in the batch leaves.

Within a phase the batch is constant, so steps are all alike: a step takes `tau`, the least of the paces of those
decoding and the step cap; `dec` of it is decoding, the rest prefill. Phases end when a prefill is done or a
sequence ends.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.slack import pace_deadline_ms, tokens_left
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.slo import Rank


@dataclass(frozen=True, slots=True)
class Projection:
    """When things happen, in ms from now, by prediction.

    Attributes:
        first_ms: next token of every request not decoding yet, by id.
        step_ms: length of a step while the last of them was computed.
    """

    first_ms: dict[str, float]
    step_ms: float


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


def step_cap_ms(ctx: DecisionContext, fixed_ms: float) -> float:
    """The longest step the plan allows: what an arriving request can wait for."""
    policy = ctx.policy
    if not policy.step_budget:
        return inf
    return min(policy.max_step_ms, max(2 * fixed_ms, policy.arrival_share * ctx.forecast.tolerance_ms))


def project(
    jobs: list[RequestState],
    decodes: list[RequestState],
    state: EngineState,
    now_ms: float,
    ctx: DecisionContext,
    room: float = 1.0,
) -> Projection:
    """Roll the batch forward until every job of `jobs` (in serving order) has its next token.

    `room` is the share of prefill time that is left to them (`room_for`).
    """
    model = ctx.model
    places = state.max_num_seqs
    active: list[tuple[float, float]] = []
    context = 0
    for r in decodes:
        left = tokens_left(r)
        context += r.computed_tokens
        active.append((float(left), (pace_deadline_ms(r) - now_ms) / left))
    heapify(active)
    per_seq = model.per_decode_seq_ms
    if active:
        per_seq += model.per_decode_context_token_ms * context / len(active)
    base = model.base_ms
    cap = step_cap_ms(ctx, base + per_seq * min(places, len(active) + len(jobs)))
    if cap == inf:
        cap = base + model.per_prefill_token_ms * state.max_step_tokens
    inside = sum(1 for j in jobs if j.phase is Phase.PREFILL)
    queue = [
        [j, model.prefill_work_ms(j.prefill_left_tokens, j.computed_tokens) / room, j.phase is Phase.PREFILL]
        for j in jobs
    ]
    first: dict[str, float] = {}
    t = k = 0.0
    tau = cap
    while queue:
        at = 0
        if len(active) + inside >= places:
            while at < len(queue) and not queue[at][2]:
                at += 1
            if at == len(queue):  # nobody may enter before a sequence ends
                end = heappop(active)[0] if active else k + 1.0
                t += (end - k) * (base + per_seq * (len(active) + 1))
                k = end
                continue
        item = queue[at]
        job, work, started = item
        seqs = len(active)
        fixed = base + per_seq * (seqs + 1)
        tau = cap
        for _, pace in active:
            if fixed < pace < tau:
                tau = pace
        per_step = max(0.05 * fixed, tau - fixed)
        steps = work / per_step
        if active and steps > active[0][0] - k:  # a sequence ends first
            end = heappop(active)[0]
            t += (end - k) * (per_step + fixed)
            item[1] = work - (end - k) * per_step
            k = end
            if not started:
                item[2] = True
                inside += 1
            continue
        t += work + steps * fixed
        k += steps
        del queue[at]
        inside -= started
        first[job.request_id] = t
        left = tokens_left(job)
        if left > 1:
            heappush(active, (k + left - 1, own_pace_ms(job)))
    return Projection(first, min(tau, cap))


def room_for(rank: Rank, ctx: DecisionContext) -> float:
    """Share of prefill time left to work of `rank` by what higher ranks are expected to bring meanwhile."""
    return max(0.05, 1.0 - ctx.policy.reserve_share * ctx.forecast.above(rank)[0])
