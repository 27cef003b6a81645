"""One simulated engine: vLLM's continuous batching, stepped by the plans of superinfer_core.

Promise: deterministic. The model of vLLM V1: a step gives every running sequence its tokens in order, then
lets waiting ones in while places, tokens and KV last (chunked prefill on); when a running sequence finds no
KV the last of the batch gives way and computes again later.
"""

from dataclasses import dataclass, replace
from math import inf

from superinfer.simulation.workload import Job
from superinfer_core.prediction.step_model import StepFacts, StepModel
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.policy import Order
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.scheduling.step import StepPlan, plan_step
from superinfer_core.slo import RequestSlo


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What bounds one engine."""

    max_num_seqs: int = 32
    max_step_tokens: int = 2048
    kv_total_tokens: int = 1_000_000


class Live:
    """One request inside an engine or its queue."""

    __slots__ = (
        "computed",
        "expected",
        "first_ms",
        "job",
        "last_ms",
        "output",
        "phase",
        "preemptions",
        "slo",
        "state",
    )

    def __init__(self, job: Job, slo: RequestSlo, expected: int) -> None:
        self.job = job
        self.slo = slo
        self.expected = expected
        self.phase = Phase.WAITING
        self.computed = 0
        self.output = 0
        self.first_ms: float | None = None
        self.last_ms: float | None = None
        self.preemptions = 0
        self.state: RequestState | None = None

    def copy(self) -> "Live":
        """An independent copy."""
        other = Live(self.job, self.slo, self.expected)
        other.phase, other.computed, other.output = self.phase, self.computed, self.output
        other.first_ms, other.last_ms, other.preemptions = self.first_ms, self.last_ms, self.preemptions
        return other

    @property
    def left(self) -> int:
        """Tokens to compute before the next one can come out."""
        return self.job.prompt_tokens + self.output - self.computed

    def as_state(self) -> RequestState:
        """What decisions see."""
        if self.state is None:
            job = self.job
            self.state = RequestState(
                job.request_id,
                self.slo,
                job.arrived_ms,
                self.phase,
                job.prompt_tokens,
                self.computed,
                self.output,
                self.expected if self.expected > self.output else self.output + 1,
                self.first_ms,
                self.preemptions,
            )
        return self.state


class _Batch:
    """What one step computes, as it is put together."""

    __slots__ = ("members", "pairs", "prefill", "prefill_left", "tokens", "tokens_left")

    def __init__(self, tokens_left: int, prefill_left: int) -> None:
        self.members: list[tuple[Live, int]] = []
        self.tokens = self.prefill = 0
        self.pairs = 0.0
        self.tokens_left = tokens_left
        self.prefill_left = prefill_left

    def fits(self, live: Live) -> int:
        """Tokens a running sequence may get."""
        if live.phase is Phase.PREFILL:
            return min(live.left, self.prefill_left, self.tokens_left)
        return min(1, self.tokens_left)

    def add(self, live: Live, tokens: int) -> None:
        """Give `tokens` to a sequence."""
        self.members.append((live, tokens))
        self.tokens += tokens
        self.tokens_left -= tokens
        if live.phase is Phase.PREFILL:
            self.pairs += tokens * (live.computed + 0.5 * tokens)
            self.prefill += tokens
            self.prefill_left -= tokens


class SimEngine:
    """Queue and batch of one executor.

    `running` and `waiting` hold Live requests by id in the order they came in.
    """

    def __init__(self, limits: EngineLimits, truth: StepModel) -> None:
        self.limits = limits
        self.truth = truth
        self.running: dict[str, Live] = {}
        self.waiting: dict[str, Live] = {}
        self.kv_used = 0
        self.steps = 0
        self.preempted = 0
        self.tokens = 0
        self._batch: list[tuple[Live, int]] = []

    def copy(self) -> "SimEngine":
        """An independent copy, between steps."""
        other = SimEngine(self.limits, self.truth)
        other.running = {i: r.copy() for i, r in self.running.items()}
        other.waiting = {i: r.copy() for i, r in self.waiting.items()}
        other.kv_used = self.kv_used
        return other

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return not self.running and not self.waiting

    def state(self) -> EngineState:
        """What decisions see."""
        limits = self.limits
        return EngineState(
            limits.max_num_seqs,
            limits.max_step_tokens,
            limits.kv_total_tokens,
            (*(r.as_state() for r in self.running.values()), *(r.as_state() for r in self.waiting.values())),
        )

    def enqueue(self, live: Live) -> None:
        """An admitted request joins the queue."""
        self.waiting[live.job.request_id] = live

    def begin_step(self, now_ms: float, ctx: DecisionContext) -> StepFacts | None:
        """Plan and start a step; its facts with the true time, or None when there is nothing to do."""
        plan = plan_step(self.state(), now_ms, ctx)
        for p in plan.preempt:
            self._preempt(p.victim_id)
        batch = self._fill(plan, ctx)
        if not batch.members:
            return None
        seqs = len(batch.members)
        context = sum(live.computed for live, _ in batch.members if live.phase is Phase.DECODE)
        self._batch = batch.members
        self.steps += 1
        step_ms = self.truth.step_ms(
            decode_seqs=seqs,
            decode_context_tokens=context,
            prefill_tokens=batch.prefill,
            prefill_context_tokens2=batch.pairs,
        )
        return StepFacts(step_ms, batch.prefill, batch.pairs, seqs, context)

    def end_step(self, now_ms: float) -> list[Live]:
        """Apply the step that ends at `now_ms`; the requests it finished."""
        finished = []
        for live, tokens in self._batch:
            live.computed += tokens
            self.kv_used += tokens
            live.state = None
            if live.phase is Phase.PREFILL:
                if live.computed < live.job.prompt_tokens + live.output:
                    continue
                live.phase = Phase.DECODE
            live.output += 1
            self.tokens += 1
            live.last_ms = now_ms
            if live.first_ms is None:
                live.first_ms = now_ms
            if live.output >= live.job.output_tokens:
                finished.append(live)
                del self.running[live.job.request_id]
                self.kv_used -= live.computed
        self._batch = []
        return finished

    def _fill(self, plan: StepPlan, ctx: DecisionContext) -> "_Batch":
        """The batch of this step: running sequences first, then whoever may enter."""
        limits = self.limits
        batch = _Batch(limits.max_step_tokens, plan.prefill_budget_tokens)
        hold = set(plan.hold)
        # vLLM lets nobody in during a step in which it had to take KV from somebody.
        closed = bool(plan.preempt) and ctx.policy.order is not Order.SLACK
        for request_id in plan.running:
            live = self.running.get(request_id)
            if live is None or request_id in hold:
                continue
            want = batch.fits(live)
            while want > self._kv_free(batch) and self._give_way(live, batch):
                closed = True
            if 0 < want <= self._kv_free(batch) and request_id in self.running:
                batch.add(live, want)
        if closed:
            return batch
        for request_id in plan.waiting:
            if len(self.running) >= limits.max_num_seqs:
                break
            live = self.waiting[request_id]
            want = min(live.left, batch.prefill_left, batch.tokens_left)
            if not 0 < want <= self._kv_free(batch):
                break
            del self.waiting[request_id]
            self.running[request_id] = live
            live.phase = Phase.PREFILL
            live.state = None
            batch.add(live, want)
        return batch

    def _kv_free(self, batch: "_Batch") -> int:
        return self.limits.kv_total_tokens - self.kv_used - batch.tokens

    def _give_way(self, live: Live, batch: "_Batch") -> bool:
        """Free KV for `live`: the last of the batch that has not been given tokens yet is preempted."""
        planned = {r.job.request_id for r, _ in batch.members}
        for request_id in reversed(self.running):
            if request_id not in planned:
                self._preempt(request_id)
                return request_id != live.job.request_id
        return False

    def _preempt(self, request_id: str) -> None:
        live = self.running.pop(request_id)
        self.kv_used -= live.computed
        live.computed = 0
        live.phase = Phase.WAITING
        live.preemptions += 1
        live.state = None
        self.preempted += 1
        self.waiting[request_id] = live


def with_contract_state(slo: RequestSlo, *, holds: bool, budget_left: float) -> RequestSlo:
    """`slo` as of an arrival."""
    if slo.contract_holds is holds and slo.budget_left == budget_left:
        return slo
    return replace(slo, contract_holds=holds, budget_left=budget_left)


def lateness_ms(live: Live) -> float:
    """How far the worst objective was missed; not above zero when everything was kept."""
    slo, job = live.slo, live.job
    if live.first_ms is None or live.last_ms is None or live.output < job.output_tokens:
        return inf
    worst = -inf
    if slo.ttft_ms is not None:
        worst = live.first_ms - job.arrived_ms - slo.ttft_ms
    if slo.itl_ms is not None and job.output_tokens > 1:
        worst = max(worst, (live.last_ms - live.first_ms) / (job.output_tokens - 1) - slo.itl_ms)
    if slo.e2e_ms is not None:
        worst = max(worst, live.last_ms - job.arrived_ms - slo.e2e_ms)
    return worst
