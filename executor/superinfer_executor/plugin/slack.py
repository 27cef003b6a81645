"""The slack scheduler: before each step it asks the core for a plan and arranges vLLM's queues accordingly.

vLLM's own `schedule` still allocates, batches and counts; it finds its running list and its queue in the
plan's order, the plan's token budget as its own, and the plan's victims already preempted. Promise: nothing
a request says stops the engine; with a baseline policy (fcfs, priority, edf) only the order of the waiting
queue is ours. One thread, vLLM's engine core loop.
"""

import logging
import time
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override
from vllm.v1.core.sched.request_queue import FCFSRequestQueue, SchedulingPolicy
from vllm.v1.request import RequestStatus

from superinfer_core.prediction.online import OnlineStepModel
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import ArrivalForecast
from superinfer_core.scheduling.policy import Order
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.scheduling.step import StepPlan
from superinfer_executor.plugin.kv_room import plan_with_room
from superinfer_executor.plugin.register import check_this_vllm
from superinfer_executor.plugin.request_slo import NO_PROMISE, InvalidRequestSlo, parse_promise
from superinfer_executor.plugin.settings import read_settings
from superinfer_executor.plugin.step_facts import (
    MAX_LISTED,
    PreemptionFact,
    ProgressFact,
    StepFactsMessage,
    StepFactsSender,
)
from superinfer_executor.plugin.step_meter import StepInFlight, StepMeter
from superinfer_executor.plugin.tracking import (
    TrackedRequest,
    pending_tokens,
    prune,
    request_state,
    running_phase,
    track,
)

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
    from vllm.v1.request import Request
else:
    VllmScheduler = object  # the mixin stands before one of vLLM's schedulers, see scheduler.py

log = logging.getLogger(__name__)

QUEUE_HEAD: Final = 128
REORDER_ALL_STEPS: Final = 32
"""A queue longer than QUEUE_HEAD (a stock `vllm serve` without our sidecar) is put in order this rarely."""

MOST_LOGGED_FAILURES: Final = 10

HELD_ONE_STEP: Final = 2
"""vLLM skips a running request whose `next_decode_eligible_step` lies beyond the step being scheduled."""


def monotonic_ms() -> float:
    """The clock of every decision in this process."""
    return time.monotonic() * 1000.0


class SlackMixin(VllmScheduler):  # type: ignore[misc]
    """Put before vLLM's scheduler (and after ResumeMixin). One thread, as the scheduler itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_this_vllm()
        super().__init__(*args, **kwargs)
        settings = read_settings()
        self.clock_ms: Callable[[], float] = monotonic_ms
        self.scheduling_policy = settings.policy
        self.step_model = OnlineStepModel(settings.step_model)
        self.forecast = ArrivalForecast()
        self.invalid_promises = 0
        self.failed_plans = 0
        self._tracked: dict[str, TrackedRequest] = {}
        self._facts = StepFactsSender.from_environment()
        self._meter = StepMeter()
        self._left: list[tuple[str, str, int]] = []
        self._displaced_for: dict[str, str] = {}
        self._unplaced: set[str] = set()
        self._steps_in_order = 0
        self._most_step_tokens: int = self.max_num_scheduled_tokens
        # Order is ours whatever --scheduling-policy says. PRIORITY only makes vLLM pick the victim of a full
        # KV cache by `Request.priority`, which is set below when that can happen.
        self.policy = SchedulingPolicy.PRIORITY
        self.waiting = FCFSRequestQueue()
        self.kv_holding_waiting = FCFSRequestQueue()
        log.info(
            "slack scheduler: order %s, %s step model",
            self.scheduling_policy.order,
            "profiled" if settings.profiled else "unprofiled",
        )

    # --- requests come and go -------------------------------------------------------------------------------

    @override
    def add_request(self, request: "Request") -> None:
        if request.request_id not in self.requests:
            self._track(request)
            self._unplaced.add(request.request_id)
        super().add_request(request)

    def _track(self, request: "Request") -> None:
        params = request.sampling_params
        try:
            promise = parse_promise(params.extra_args if params is not None else None)
        except InvalidRequestSlo as error:
            promise = NO_PROMISE
            self.invalid_promises += 1
            if self.invalid_promises == 1:
                log.warning(
                    "request %s is served as best effort: %s (later ones are counted, not logged)",
                    request.request_id,
                    error,
                )
        now_ms = self.clock_ms()
        tracked = track(request, promise, now_ms, time.time())
        self._tracked[request.request_id] = tracked
        work_ms = self.step_model.model.prefill_work_ms(request.num_prompt_tokens)
        slo = promise.slo
        self.forecast.observe(
            now_ms,
            slo.rank,
            work_ms,
            tolerance_ms=float("inf") if slo.best_effort or slo.ttft_ms is None else slo.ttft_ms - work_ms,
        )

    @override
    def _preempt_request(self, request: "Request", *args: Any, **kwargs: Any) -> None:
        request_id = request.request_id
        self._left.append((request_id, self._displaced_for.pop(request_id, ""), request.num_computed_tokens))
        super()._preempt_request(request, *args, **kwargs)

    # --- one step -------------------------------------------------------------------------------------------

    @override
    def schedule(self, *args: Any, **kwargs: Any) -> "SchedulerOutput":
        began_ms = self.clock_ms()
        if len(self._tracked) > 2 * len(self.requests) + 64:
            self._tracked = prune(self._tracked, self.requests)
        decoding = {r.request_id for r in self.running if running_phase(r) is Phase.DECODE}
        budget = self._arrange(decoding, began_ms)
        planned_ms = self.clock_ms() - began_ms
        try:
            output: SchedulerOutput = super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = self._most_step_tokens
        step = StepInFlight(output, began_ms, planned_ms, budget)
        scheduled = output.num_scheduled_tokens
        step.count(scheduled, {i: self.requests[i].num_computed_tokens for i in scheduled}, decoding)
        step.preemptions, self._left = self._left, []
        self._meter.scheduled(step)
        return output

    @override
    def update_from_output(
        self, scheduler_output: "SchedulerOutput", model_runner_output: Any
    ) -> dict[int, Any]:
        outputs: dict[int, Any] = super().update_from_output(scheduler_output, model_runner_output)
        now_ms = self.clock_ms()
        for client in outputs.values():
            for out in client.outputs:
                tracked = self._tracked.get(out.request_id)
                if tracked is None:
                    continue
                if out.finish_reason is not None:
                    del self._tracked[out.request_id]
                elif out.new_token_ids and tracked.first_token_ms is None:
                    tracked.first_token_ms = now_ms
        ended = self._meter.ended(scheduler_output, now_ms, busy=bool(self.running))
        if ended is not None:
            step, facts = ended
            self.step_model.observe(facts)
            if self._facts.enabled:
                self._facts.send(self._message(step, facts.step_ms))
        return outputs

    @override
    def shutdown(self) -> None:
        self._facts.close()
        super().shutdown()

    # --- the plan -------------------------------------------------------------------------------------------

    def _arrange(self, decoding: set[str], now_ms: float) -> int | None:
        """Arrange everything for the coming step; the prefill budget when there was something to plan."""
        try:
            return self._plan_and_apply(decoding, now_ms)
        except Exception:
            # One bad decision must not end every stream of this engine: the step goes on in the order of the
            # last plan. It is a defect all the same, so it is loud, and counted with the facts.
            self.failed_plans += 1
            if self.failed_plans <= MOST_LOGGED_FAILURES:
                log.exception("the step could not be planned")
            return None

    def _plan_and_apply(self, decoding: set[str], now_ms: float) -> int | None:
        waiting = [r for queue in (self.kv_holding_waiting, self.waiting) for r in queue]
        if not waiting and len(decoding) == len(self.running) and not self._outpaced():
            if self.scheduling_policy.order is Order.SLACK:
                self._prepare_kv_victims()
            return None
        state = self._state(self._considered(waiting), decoding)
        ctx = DecisionContext(
            model=self.step_model.model,
            policy=self.scheduling_policy,
            factor=self.step_model.factor,
            forecast=self.forecast.snapshot(now_ms),
        )
        plan = plan_with_room(
            state,
            now_ms,
            ctx,
            free_tokens=self.kv_cache_manager.block_pool.get_num_free_blocks() * self.block_size,
            needed_tokens=self._tokens_to_enter,
            freed_tokens=self._tokens_freed_by,
        )
        self._preempt(plan)
        self._reorder_waiting(plan)
        if self.scheduling_policy.order is not Order.SLACK:
            return None
        self._reorder_running(plan)
        self._hold(plan)
        self._prepare_kv_victims()
        return self._bound_step(plan, decoding)

    def _outpaced(self) -> bool:
        """Whether a step in which all decode is too long for somebody's pace: then some may pause."""
        if len(self.running) < 2 or not self.scheduling_policy.pause_decodes:
            return False
        promises = (self._tracked_of(r).promise.slo for r in self.running)
        tightest = min(
            (s.itl_ms for s in promises if s.itl_ms is not None and not s.best_effort), default=inf
        )
        context = sum(r.num_computed_tokens for r in self.running)
        step_ms = self.step_model.model.step_ms(decode_seqs=len(self.running), decode_context_tokens=context)
        return step_ms > tightest

    def _considered(self, waiting: "list[Request]") -> "list[Request]":
        """Who may enter the batch now; of a long queue its head and what came since it was put in order."""
        ready = [r for r in waiting if self._can_enter(r)]
        if len(ready) <= QUEUE_HEAD or self._steps_in_order >= REORDER_ALL_STEPS:
            self._steps_in_order = 0
            self._unplaced.clear()
            return ready
        self._steps_in_order += 1
        head, rest = ready[:QUEUE_HEAD], ready[QUEUE_HEAD:]
        return head + [r for r in rest if r.request_id in self._unplaced]

    def _state(self, ready: "list[Request]", decoding: set[str]) -> EngineState:
        states: list[RequestState] = []
        for request in self.running:
            phase = Phase.DECODE if request.request_id in decoding else Phase.PREFILL
            states.append(request_state(request, self._tracked_of(request), phase))
        states.extend(request_state(r, self._tracked_of(r), Phase.WAITING) for r in ready)
        return EngineState(
            max_num_seqs=self.max_num_active_reqs,
            max_step_tokens=self._most_step_tokens,
            kv_total_tokens=(self.cache_config.num_gpu_blocks or 0) * self.block_size,
            requests=tuple(states),
        )

    def _tracked_of(self, request: "Request") -> TrackedRequest:
        tracked = self._tracked.get(request.request_id)
        if tracked is None:  # a path into the engine that we do not know of
            self._track(request)
            tracked = self._tracked[request.request_id]
        return tracked

    @staticmethod
    def _can_enter(request: "Request") -> bool:
        """Whether vLLM would let it into the batch now; nobody gives way to one that it would skip."""
        if request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            structured = request.structured_output_request
            return structured is not None and structured.grammar is not None
        return request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)

    def _tokens_to_enter(self, request_id: str) -> int:
        request = self.requests[request_id]
        tokens = request.num_tokens if self.scheduler_reserve_full_isl else 1
        blocks = -(-tokens // self.block_size)
        if blocks > self.kv_cache_manager.block_pool.get_num_free_blocks():
            # Blocks that others hold and it shares need no room. Looked up only when it decides something.
            shared = self.kv_cache_manager.get_computed_blocks(request)[0].blocks
            blocks -= sum(1 for group in shared for block in group if block.ref_cnt > 0)
        return int(blocks * self.block_size)

    def _tokens_freed_by(self, request_id: str) -> int:
        groups = self.kv_cache_manager.get_blocks(request_id).blocks
        return int(self.block_size * sum(1 for group in groups for block in group if block.ref_cnt == 1))

    # --- applying it ----------------------------------------------------------------------------------------

    def _preempt(self, plan: StepPlan) -> None:
        for preempt in plan.preempt:
            victim = self.requests.get(preempt.victim_id)
            if victim is None or victim.status != RequestStatus.RUNNING:
                continue
            if not self._request_blocks_can_be_freed(victim):
                continue
            self.running.remove(victim)
            self._displaced_for[preempt.victim_id] = preempt.for_id
            self._preempt_request(victim, time.monotonic(), drop_stale_output=self.requires_kv_delivery)

    def _reorder_waiting(self, plan: StepPlan) -> None:
        place = {request_id: number for number, request_id in enumerate(plan.waiting)}
        last = len(place)
        for queue in (self.waiting, self.kv_holding_waiting):
            if len(queue) > 1:
                arranged = sorted(queue, key=lambda r: place.get(r.request_id, last))
                queue.clear()
                queue.extend(arranged)

    def _reorder_running(self, plan: StepPlan) -> None:
        place = {request_id: number for number, request_id in enumerate(plan.running)}
        last = len(place)
        self.running.sort(key=lambda r: place.get(r.request_id, last))

    def _hold(self, plan: StepPlan) -> None:
        for request_id in plan.hold:
            request = self.requests[request_id]
            held = self.current_step + HELD_ONE_STEP
            request.next_decode_eligible_step = max(request.next_decode_eligible_step, held)

    def _bound_step(self, plan: StepPlan, decoding: set[str]) -> int:
        going = decoding.difference(plan.hold)
        decode_tokens = sum(pending_tokens(r) for r in self.running if r.request_id in going)
        least = 0 if decode_tokens else 1  # a step that computes nothing would spin
        prefill = max(least, plan.prefill_budget_tokens)
        self.max_num_scheduled_tokens = min(self._most_step_tokens, decode_tokens + prefill)
        return prefill

    def _prepare_kv_victims(self) -> None:
        """Give vLLM its order of victims, if the coming step could fill the KV cache."""
        most_new_blocks = len(self.running) + self._most_step_tokens // self.block_size + 1
        if self.kv_cache_manager.block_pool.get_num_free_blocks() > most_new_blocks:
            return

        def importance(request: "Request") -> tuple[int, int, int, float, str]:
            tracked = self._tracked_of(request)
            rank = tracked.promise.slo.rank
            # Among equals: who was displaced before stays, then who came first.
            return (
                rank.tier_rank,
                rank.negated_priority,
                -request.num_preemptions,
                tracked.arrived_ms,
                request.request_id,
            )

        for number, request in enumerate(sorted(self.running, key=importance)):
            request.priority = number

    # --- facts ----------------------------------------------------------------------------------------------

    def _message(self, step: StepInFlight, step_ms: float) -> StepFactsMessage:
        running, waiting = self.get_request_counts()
        prefills = [r for r in self.running if running_phase(r) is Phase.PREFILL]
        return StepFactsMessage(
            step=self._meter.steps,
            step_ms=step_ms,
            prefill_tokens=step.prefill_tokens,
            prefill_context_tokens2=step.prefill_context_tokens2,
            decode_seqs=step.decode_seqs,
            decode_context_tokens=step.decode_context_tokens,
            running=running,
            waiting=waiting,
            kv_usage=self.kv_cache_manager.usage,
            plan_ms=step.plan_ms,
            prefill_budget_tokens=step.prefill_budget_tokens,
            preemptions=tuple(PreemptionFact(*left) for left in step.preemptions[:MAX_LISTED]),
            progress=tuple(ProgressFact(r.request_id, r.num_computed_tokens) for r in prefills[:MAX_LISTED]),
            dropped=self._facts.dropped,
            invalid_promises=self.invalid_promises,
            failed_plans=self.failed_plans,
        )
