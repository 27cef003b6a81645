"""Where an engine's backlog leads: a fluid rollout of its batch under the step budget.

Promise: deterministic and bounded: as many phases as there are requests, a few scans of the batch each; needs
no clock. It is what admission believes, so it errs late: prefill gets only the time that the paces in the
batch leave, everyone decoding as late as its promise allows.

Within a phase those who decode are the same, so steps are all alike (`PacedBatch`): a part of a step is
decoding, the rest prefill. Phases end when a prefill is done, or a sequence ends or has rested enough.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.pace import ahead_ms, own_pace_ms, pace_ms, token_ms
from superinfer_core.scheduling.paced_batch import PacedBatch
from superinfer_core.scheduling.slack import tokens_left
from superinfer_core.scheduling.state import EngineState, Phase, RequestState, places_of
from superinfer_core.slo import Rank

STEPS_AHEAD: Final = 2
"""A decode pauses while it is ahead of its pace by so many of the longest steps a plan allows: this one
without a token, and the next one that brings it."""

LEAST_PREFILL_SHARE: Final = 0.05
"""Least prefill time of a step over its decoding time.

Where the model is a little too hopeful, sequences that are just behind look savable for ever; without a
floor nobody's prefill would move until they end (measured: six seconds on a real engine).
"""


@dataclass(frozen=True, slots=True)
class Projection:
    """When things happen, in ms from now, by prediction.

    Attributes:
        first_ms: next token of every request not decoding yet, by id.
        step_ms: length of a step while the last of them was computed.
    """

    first_ms: dict[str, float]
    step_ms: float


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
    batch = _batch_of(decodes, now_ms, ctx, _longest_ms(jobs, decodes, state, ctx, behind))
    queue = [_Item(j, model.prefill_work_ms(j.prefill_left_tokens, j.computed_tokens) / room) for j in jobs]
    inside = sum(item.job.places for item in queue if item.started)
    first: dict[str, float] = {}
    t = 0.0
    while queue:
        at = _next(queue, places - batch.places - inside)
        if at < 0 and batch.places:  # nobody may enter before a sequence ends
            t = batch.hurry(t)
            continue
        at = max(0, at)  # more choices than there are places take turns
        item = queue[at]
        batch.settle()
        per_step = max(LEAST_PREFILL_SHARE * batch.fixed_ms, batch.step_ms - batch.fixed_ms)
        stretch = 1.0 + batch.fixed_ms / per_step if per_step > 0 else 1.0
        change_ms = batch.changes_ms()
        if item.work * stretch > change_ms - t:  # somebody goes on or ends first
            item.work -= max(0.0, change_ms - t) / stretch
            t = max(t, change_ms)
            batch.change()
            inside += 0 if item.started else item.job.places
            item.started = True
            continue
        t += item.work * stretch
        del queue[at]
        job = item.job
        inside -= job.places if item.started else 0
        # A token comes at the end of a step, and no step is shorter than its decoding: a small prompt takes
        # no fraction of one.
        alone = model.prefill_work_ms(job.prefill_left_tokens, job.computed_tokens)
        first[job.request_id] = max(t, batch.fixed_ms + alone)
        left = tokens_left(job)
        if left > 1:
            batch.join(t, left - 1, own_pace_ms(job), token_ms(job, job.prompt_tokens, ctx), job.places)
    return Projection(first, batch.step_ms)


def _longest_ms(
    jobs: list[RequestState],
    decodes: list[RequestState],
    state: EngineState,
    ctx: DecisionContext,
    behind: int,
) -> float:
    """The longest step the plan allows once all who want places have them."""
    model, taken = ctx.model, places_of(decodes)
    decoding = sum(token_ms(r, r.computed_tokens, ctx) for r in decodes)
    mean = decoding / taken if taken else model.per_decode_seq_ms
    wanted = taken + behind + places_of(jobs)
    cap = step_cap_ms(ctx, model.base_ms + mean * min(state.max_num_seqs, wanted))
    return cap if cap < inf else model.base_ms + model.per_prefill_token_ms * state.max_step_tokens


def _batch_of(decodes: list[RequestState], now_ms: float, ctx: DecisionContext, cap_ms: float) -> PacedBatch:
    """Those who decode now, each with what is left of its answer and how long it may rest before.

    Who is ahead of its pace by more than a pause takes may rest for what is beyond, at most for half of the
    time it has left; its tokens then come at the pace that still makes the last one due.
    """
    model, pausing = ctx.model, ctx.policy.pause_decodes
    batch = PacedBatch(model.base_ms + model.per_decode_seq_ms, pausing=pausing)
    batch.cap_ms = cap_ms
    for r in decodes:
        left, pace = tokens_left(r), pace_ms(r, now_ms)
        rest = max(0.0, ahead_ms(r, now_ms) - STEPS_AHEAD * cap_ms) if pausing else 0.0
        rest = min(rest, 0.5 * pace * left) if rest else 0.0
        batch.join(0.0, left, pace - rest / left, token_ms(r, r.computed_tokens, ctx), r.places, rest)
    return batch


def _next(queue: list[_Item], free: int) -> int:
    """Index of the first job that has its places or may take them; -1 if there is none."""
    if free >= queue[0].job.places:
        return 0
    for at, item in enumerate(queue):
        if item.started:
            return at
    return -1


def room_for(rank: Rank, ctx: DecisionContext) -> float:
    """Share of prefill time left to work of `rank` by what higher ranks are expected to bring meanwhile."""
    return max(0.05, 1.0 - ctx.policy.reserve_share * ctx.forecast.above(rank)[0])
