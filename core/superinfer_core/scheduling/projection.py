"""Where an engine's backlog leads: a fluid rollout of its batch under the step budget.

Promise: deterministic and bounded (O(n log n) in the requests); needs no clock. It is what admission
believes, so it errs late: prefill gets only the time the tightest pace in the batch leaves.

Within a phase the batch is constant, so steps are all alike: a step takes `tau`, the least of the paces of
those decoding and the step cap; `dec` of it is decoding, the rest prefill. Phases end when a prefill is
done or a sequence ends.
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


class _Item:
    """A job in the rollout: what is left of its prefill, and whether it has a place."""

    __slots__ = ("job", "started", "work")

    def __init__(self, job: RequestState, work: float) -> None:
        self.job = job
        self.work = work
        self.started = job.phase is Phase.PREFILL


def project(
    jobs: list[RequestState],
    decodes: list[RequestState],
    state: EngineState,
    now_ms: float,
    ctx: DecisionContext,
    room: float = 1.0,
    behind: int = 0,
) -> Projection:
    """Roll the batch forward until every job of `jobs` (in serving order) has its next token.

    `room` is the share of prefill time that is left to them (`room_for`); `behind` the places wanted by
    whoever waits after them.
    """
    model, places = ctx.model, state.max_num_seqs
    active = _paces(decodes, now_ms)
    seqs = sum(r.places for r in decodes)
    base, per_seq = model.base_ms, model.per_decode_seq_ms
    if decodes:
        per_seq += (
            model.per_decode_context_token_ms * sum(r.computed_tokens * r.places for r in decodes) / seqs
        )
    cap = step_cap_ms(ctx, base + per_seq * min(places, seqs + behind + sum(j.places for j in jobs)))
    if cap == inf:
        cap = base + model.per_prefill_token_ms * state.max_step_tokens
    queue = [_Item(j, model.prefill_work_ms(j.prefill_left_tokens, j.computed_tokens) / room) for j in jobs]
    inside = sum(item.job.places for item in queue if item.started)
    first: dict[str, float] = {}
    t = k = 0.0
    tau, stale = cap, True  # stale: the tightest pace has to be looked for again
    while queue:
        at = _next(queue, places - seqs - inside)
        fixed = base + per_seq * (seqs + 1)
        if at < 0 and active:  # nobody may enter before a sequence ends
            end, pace, gone = heappop(active)
            seqs -= gone
            t += (end - k) * fixed
            k, stale = end, stale or pace <= tau
            continue
        at = max(0, at)  # more choices than there are places take turns
        item = queue[at]
        if stale:
            tau, stale = _step_ms(active, fixed, cap), False
        per_step = max(0.05 * fixed, tau - fixed)
        steps = item.work / per_step
        if active and steps > active[0][0] - k:  # a sequence ends first
            end, pace, gone = heappop(active)
            seqs -= gone
            t += (end - k) * (per_step + fixed)
            item.work -= (end - k) * per_step
            k, stale = end, pace <= tau
            inside += 0 if item.started else item.job.places
            item.started = True
            continue
        t += item.work + steps * fixed
        k += steps
        del queue[at]
        inside -= item.job.places if item.started else 0
        # A token comes at the end of a step, and no step is shorter than its decoding: a small prompt takes
        # no fraction of one.
        alone = model.prefill_work_ms(item.job.prefill_left_tokens, item.job.computed_tokens)
        first[item.job.request_id] = max(t, fixed + alone)
        left = tokens_left(item.job)
        if left > 1:
            pace = own_pace_ms(item.job)
            heappush(active, (k + left - 1, pace, item.job.places))
            seqs += item.job.places
            stale = stale or pace < tau
    return Projection(first, tau)


def _paces(decodes: list[RequestState], now_ms: float) -> list[tuple[float, float, int]]:
    """(step in which it ends, time per token that keeps it, places) of all who decode, as a heap."""
    active = []
    for r in decodes:
        left = tokens_left(r)
        active.append((float(left), (pace_deadline_ms(r) - now_ms) / left, r.places))
    heapify(active)
    return active


def _next(queue: list[_Item], free: int) -> int:
    """Index of the first job that has its places or may take them; -1 if there is none."""
    if free >= queue[0].job.places:
        return 0
    for at, item in enumerate(queue):
        if item.started:
            return at
    return -1


def _step_ms(active: list[tuple[float, float, int]], fixed_ms: float, cap_ms: float) -> float:
    """Length of a step: the tightest pace that bare decoding can keep, at most the cap."""
    tau = cap_ms
    for _, pace, _ in active:
        if fixed_ms < pace < tau:
            tau = pace
    return tau


def room_for(rank: Rank, ctx: DecisionContext) -> float:
    """Share of prefill time left to work of `rank` by what higher ranks are expected to bring meanwhile."""
    return max(0.05, 1.0 - ctx.policy.reserve_share * ctx.forecast.above(rank)[0])
