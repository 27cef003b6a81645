"""Whether one request can be promised: its own objectives, and nobody else's lost for it.

Promise: never raises for any state; pure. In an idle engine a request is admitted exactly if it is feasible
when idle.

Both halves: the predicted quantile of the *whole* time meets every objective after the
work ahead, and no admitted request that would be kept without the candidate is pushed past its own
deadline. Room for what higher ranks still bring is left in the projection (`policy.reserve_share`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.displacing import displaced_for
from superinfer_core.scheduling.order import order
from superinfer_core.scheduling.pace import decoding_ms, own_pace_ms
from superinfer_core.scheduling.policy import Order
from superinfer_core.scheduling.projection import Projection, project, room_for
from superinfer_core.scheduling.reserve import crowds_out
from superinfer_core.scheduling.slack import (
    end_deadline_ms,
    first_token_deadline_ms,
    pace_deadline_ms,
    slack_ms,
    tokens_left,
)
from superinfer_core.scheduling.state import EngineState, Phase, RequestState, places_of
from superinfer_core.slo import Metric, Rank


@dataclass(frozen=True, slots=True)
class Prediction:
    """What admission expects, at its quantile; TTFT and E2E count from arrival.

    `slack_ms` is the least over the objectives that have a deadline; infinite without any.
    """

    ttft_ms: float
    itl_ms: float
    e2e_ms: float
    slack_ms: float


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer: admitted, or refused and why."""

    admitted: bool
    prediction: Prediction
    refusal: Refusal | None = None


ROLLED_BEST_EFFORT: Final = 32
"""Best effort behind a longer queue is not rolled forward request by request: it is promised nothing, and
thousands that wait must not cost a projection of thousands for each that joins them."""


def admit(candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext) -> Admission:
    """Decide about `candidate`, which is not among `state.requests`."""
    if candidate.slo.best_effort and len(state.requests) > state.max_num_seqs + ROLLED_BEST_EFFORT:
        return Admission(admitted=True, prediction=_behind_everyone(candidate, state, now_ms, ctx))
    prediction, late = _predict(candidate, state, now_ms, ctx)
    if candidate.slo.best_effort or ctx.policy.order is not Order.SLACK:
        return Admission(admitted=True, prediction=prediction)
    broken = _broken(candidate, prediction)
    if broken is not None and broken[0] is Metric.TTFT:
        displaced = displaced_for(candidate, state, now_ms, ctx)
        if displaced is not None:
            sooner, late_then = _predict(candidate, displaced, now_ms, ctx)
            if _broken(candidate, sooner) is None:
                prediction, broken, state, late = sooner, None, displaced, late_then
    if broken is not None:
        metric, predicted, required = broken
        return Admission(
            admitted=False,
            prediction=prediction,
            refusal=_infeasible(candidate, state, now_ms, ctx, metric, predicted, required),
        )
    if crowds_out(candidate, state, now_ms, ctx):
        return Admission(
            admitted=False,
            prediction=prediction,
            refusal=_harm(candidate, state, now_ms, ctx, prediction, []),
        )
    harmed = _harmed(late, candidate.slo.rank, state, now_ms, ctx)
    if harmed:
        return Admission(
            admitted=False,
            prediction=prediction,
            refusal=_harm(candidate, state, now_ms, ctx, prediction, harmed),
        )
    return Admission(admitted=True, prediction=prediction)


def admit_all(
    candidates: Sequence[RequestState], state: EngineState, now_ms: float, ctx: DecisionContext
) -> tuple[Admission, ...]:
    """Decide about requests that arrived together, each given those before it.

    Where all of them can be promised together, one projection says so for all; else they are taken one by
    one.
    """
    if len(candidates) > 1:
        together = _together(candidates, state, now_ms, ctx)
        if together is not None:
            return together
    answers = []
    for candidate in candidates:
        answer = admit(candidate, state, now_ms, ctx)
        answers.append(answer)
        if answer.admitted:
            state = replace(state, requests=(*state.requests, candidate))
    return tuple(answers)


def _together(
    candidates: Sequence[RequestState], state: EngineState, now_ms: float, ctx: DecisionContext
) -> tuple[Admission, ...] | None:
    """The answers if every candidate can be promised with all the others there, else None."""
    room = min(room_for(c.slo.rank, ctx) for c in candidates)
    joined = replace(state, requests=(*state.requests, *candidates))
    rollout = _roll(joined.requests, joined, now_ms, ctx, room, {c.request_id for c in candidates})
    answers = []
    for c in candidates:
        prediction = _prediction(c, rollout, joined, now_ms, ctx)
        answers.append(Admission(admitted=True, prediction=prediction))
        if c.slo.best_effort or ctx.policy.order is not Order.SLACK:
            continue
        if _broken(c, prediction) is not None:
            return None
        others = replace(joined, requests=tuple(r for r in joined.requests if r is not c))
        if crowds_out(c, others, now_ms, ctx):
            return None
    if ctx.policy.order is Order.SLACK and _harmed(
        rollout.projection.first_ms, max(c.slo.rank for c in candidates), state, now_ms, ctx
    ):
        return None
    return tuple(answers)


def predict(candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext) -> Prediction:
    """What `candidate` would see if it joined now."""
    return _predict(candidate, state, now_ms, ctx)[0]


@dataclass(frozen=True, slots=True)
class _Rollout:
    """A projection of requests, and what of them it was made of."""

    projection: Projection
    jobs: list[RequestState]
    decode_context: int


def _roll(
    requests: Sequence[RequestState],
    state: EngineState,
    now_ms: float,
    ctx: DecisionContext,
    room: float,
    asked: Collection[str] = (),
) -> _Rollout:
    """Roll `requests` forward.

    `asked` are the ids that must be in the projection even if nothing was promised to them.
    """
    decodes = [r for r in requests if r.phase is Phase.DECODE]
    jobs = order((r for r in requests if r.phase is not Phase.DECODE), now_ms, ctx)
    # Whoever waits behind the last that is promised or asked about changes nothing for any of these.
    last = len(jobs)
    while last and _is_nobodys_concern(jobs[last - 1], asked):
        last -= 1
    projection = project(jobs[:last], decodes, state, now_ms, ctx, room, places_of(jobs[last:]))
    return _Rollout(projection, jobs, sum(r.computed_tokens * r.places for r in decodes))


def _is_nobodys_concern(r: RequestState, asked: Collection[str]) -> bool:
    return r.slo.best_effort and r.phase is Phase.WAITING and r.request_id not in asked


def _predict(
    candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext
) -> tuple[Prediction, Mapping[str, float]]:
    joined = replace(state, requests=(*state.requests, candidate))
    room = room_for(candidate.slo.rank, ctx)
    rollout = _roll(joined.requests, state, now_ms, ctx, room, (candidate.request_id,))
    return _prediction(candidate, rollout, joined, now_ms, ctx), rollout.projection.first_ms


def _behind_everyone(
    candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext
) -> Prediction:
    """What best effort sees at the end of a long queue: everyone's prefill, then a place."""
    model = ctx.model
    work = tokens = 0.0
    for r in state.requests:
        tokens += r.places * tokens_left(r)
        if r.phase is not Phase.DECODE:
            work += model.prefill_work_ms(r.prefill_left_tokens, r.computed_tokens)
    factor = ctx.factor(ctx.policy.admission_quantile or candidate.slo.quantile)
    running = [r for r in state.requests if r.phase is Phase.DECODE]
    context = sum(r.computed_tokens * r.places for r in running) / max(1, places_of(running))
    seqs = max(1, state.max_num_seqs)
    step = model.step_ms(decode_seqs=seqs, decode_context_tokens=context * seqs) * factor
    own = model.prefill_work_ms(candidate.prefill_left_tokens, candidate.computed_tokens)
    ttft = max(0.0, now_ms - candidate.arrived_ms) + (work + own) * factor + (tokens / seqs + 1) * step
    return Prediction(ttft, step, ttft + (tokens_left(candidate) - 1) * step, inf)


def _prediction(
    candidate: RequestState, rollout: _Rollout, joined: EngineState, now_ms: float, ctx: DecisionContext
) -> Prediction:
    """What a rollout says about `candidate`, which is among `joined.requests`."""
    slo, projection = candidate.slo, rollout.projection
    factor = ctx.factor(ctx.policy.admission_quantile or slo.quantile)
    margin = ctx.policy.admission_margin_ms if len(joined.requests) > 1 else 0.0
    waited = max(0.0, now_ms - candidate.arrived_ms)
    first = projection.first_ms[candidate.request_id] * factor + margin
    ttft = waited + first
    seqs = min(joined.max_num_seqs, sum(r.places for r in joined.requests))
    context = rollout.decode_context + candidate.prompt_tokens * candidate.places
    step = ctx.model.step_ms(decode_seqs=seqs, decode_context_tokens=context) * factor
    left = tokens_left(candidate)
    own = own_pace_ms(candidate)
    if step > own and factor * decoding_ms(joined.requests, own / factor, now_ms, ctx) <= own:
        step = own  # the others pause as often as it takes
    itl = max(step, min(own, step + factor * _prefill_after_ms(candidate, rollout, ctx) / left))
    e2e = ttft + (left - 1) * itl
    slack = min(
        first_token_deadline_ms(candidate) - now_ms - first,
        end_deadline_ms(candidate) - now_ms - first - (left - 1) * step,
    )
    return Prediction(ttft, itl, e2e, slack)


def _prefill_after_ms(candidate: RequestState, rollout: _Rollout, ctx: DecisionContext) -> float:
    """Prefill that runs while the candidate decodes: the steps it shares are longer by so much."""
    work = 0.0
    for r in reversed(rollout.jobs):
        if r is candidate:
            break
        work += ctx.model.prefill_work_ms(r.prefill_left_tokens, r.computed_tokens)
    return work


def _broken(candidate: RequestState, p: Prediction) -> tuple[Metric, float, float] | None:
    """The first objective the prediction breaks: (metric, predicted, required)."""
    slo = candidate.slo
    if slo.ttft_ms is not None and candidate.first_token_ms is None and not p.ttft_ms <= slo.ttft_ms:
        return Metric.TTFT, p.ttft_ms, slo.ttft_ms
    if slo.itl_ms is not None and tokens_left(candidate) > 1 and not p.itl_ms <= slo.itl_ms:
        return Metric.ITL, p.itl_ms, slo.itl_ms
    if slo.e2e_ms is not None and not p.slack_ms >= 0:
        return Metric.E2E, slo.e2e_ms - p.slack_ms, slo.e2e_ms
    return None


def _harmed(
    late: Mapping[str, float],
    rank: Rank,
    state: EngineState,
    now_ms: float,
    ctx: DecisionContext,
) -> list[RequestState]:
    """Admitted requests that miss with the candidates and would not without them."""
    room = room_for(rank, ctx)
    suspects = []
    step = ctx.model.step_ms(decode_seqs=state.max_num_seqs)
    for r in state.requests:
        at = late.get(r.request_id)
        if at is None or r.slo.best_effort:
            continue
        factor = ctx.factor(ctx.policy.admission_quantile or r.slo.quantile)
        due = first_token_deadline_ms(r)
        if r.first_token_ms is not None:
            due = pace_deadline_ms(r) - (tokens_left(r) - 1) * step
        if now_ms + at * factor > due:
            suspects.append((r, at, (due - now_ms) / factor))
    if not suspects:
        return []
    without = _roll(state.requests, state, now_ms, ctx, room).projection.first_ms
    harmed = []
    for r, at, left in suspects:
        before = without[r.request_id]
        # One that runs behind is still protected from its equals while it can be kept: else a single wrong
        # prediction would leave it to everyone who comes later.
        behind = not r.slo.rank > rank and at - before > 1.0 and slack_ms(r, now_ms, ctx) >= 0
        if before <= left or behind:
            harmed.append(r)
    return harmed


def feasible_when_idle(
    candidate: RequestState, state: EngineState, now_ms: float, ctx: DecisionContext
) -> bool:
    """Whether an empty engine could keep the candidate's objectives."""
    idle = replace(state, requests=())
    return _broken(candidate, _predict(candidate, idle, now_ms, ctx)[0]) is None


def _infeasible(
    candidate: RequestState,
    state: EngineState,
    now_ms: float,
    ctx: DecisionContext,
    metric: Metric,
    predicted: float,
    required: float,
) -> Refusal:
    return Refusal(
        RefusalCode.SLO_INFEASIBLE,
        f"{metric.value} would be {_told(predicted)} ms, the contract requires {_told(required)} ms",
        metric=metric.value,
        predicted_ms=predicted,
        required_ms=required,
        tightest_ms=predicted,
        feasible_when_idle=feasible_when_idle(candidate, state, now_ms, ctx),
    )


def _told(ms: float) -> str:
    """Whole milliseconds, or tenths where a whole one would make different figures look the same."""
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}"


def _harm(
    candidate: RequestState,
    state: EngineState,
    now_ms: float,
    ctx: DecisionContext,
    p: Prediction,
    harmed: list[RequestState],
) -> Refusal:
    required = candidate.slo.ttft_ms if candidate.slo.ttft_ms is not None else inf
    return Refusal(
        RefusalCode.SLO_INFEASIBLE,
        f"{len(harmed)} admitted request(s) would miss their own deadline"
        if harmed
        else "the places left are kept for more important work that is expected",
        metric=Metric.TTFT.value,
        predicted_ms=p.ttft_ms,
        required_ms=required if required != inf else None,
        feasible_when_idle=feasible_when_idle(candidate, state, now_ms, ctx),
        harm=True,
    )
