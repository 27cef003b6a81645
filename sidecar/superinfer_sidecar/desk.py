"""The sidecar's desk: takes requests in, admits, queues, dispatches, follows and ends them.

Everything happens synchronously on the event loop's thread, with `now` from one injected clock, so a
decision and the enqueue it stands for are one step. The desk does no I/O: engine and ingresses are ports that
return at once. Every request that enters leaves exactly once: by its last output, a refusal, a cancel, a loss
or the end.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.scheduling.admission import Admission
from superinfer_core.scheduling.state import Phase
from superinfer_core.slo import Rank
from superinfer_proto.v1 import engine_pb2, work_pb2
from superinfer_sidecar import answers
from superinfer_sidecar.backpressure import BackPressure
from superinfer_sidecar.book import Book
from superinfer_sidecar.counters import Counters
from superinfer_sidecar.dispatch import Dispatcher
from superinfer_sidecar.listener import DeskListener
from superinfer_sidecar.planner import Planner
from superinfer_sidecar.ports import EnginePort, IngressPort
from superinfer_sidecar.settings import SidecarSettings
from superinfer_sidecar.tracked import Stage, Tracked
from superinfer_sidecar.wire import InvalidSubmitError, known_code, read_promise

_IDLE_RETRY_MS: Final = 1000.0
_REMEMBERED_ATTEMPTS: Final = 1 << 14


class Desk:
    """All requests of one sidecar."""

    def __init__(
        self, settings: SidecarSettings, planner: Planner, book: Book, clock_ms: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self._sequence = 0
        self.planner = planner
        self.book = book
        self.counters = Counters()
        self.pressure = BackPressure()
        self.dispatcher = Dispatcher(
            book,
            planner,
            self.counters,
            serves_everyone=settings.pass_through or not settings.enforce,
        )
        self.engine: EnginePort | None = None
        self.draining = False
        self.last_frame_ms = 0.0
        self._over: OrderedDict[str, int] = OrderedDict()
        self.listener = DeskListener()

    # --- from ingresses

    def submit(self, submits: Iterable[work_pb2.Submit], owner: IngressPort) -> None:
        """Take requests in; each is answered by one decision, now or once its size is known."""
        for submit in submits:
            self.counters.submits += 1
            try:
                self._enter(submit, owner)
            except InvalidSubmitError as invalid:
                self._refuse(submit, owner, invalid.refusal)

    def cancel(self, cancels: Iterable[work_pb2.Cancel], owner: IngressPort) -> None:
        """Forget requests of this ingress; the engine hears of them before its next step.

        The places they leave are given away once, after all of them: hundreds of clients that leave together
        must not cost hundreds of decisions, nor have places given to requests that leave in the same moment.
        """
        left = False
        for cancel in cancels:
            request = self.book.by_id.get(cancel.request_id)
            if request is None or request.owner is not owner or request.attempt > cancel.attempt:
                continue
            self.counters.cancelled += 1
            self._take_back(request)
            left = True
        if left:
            self.dispatch()

    def ingress_lost(self, owner: IngressPort) -> None:
        """Forget everything an ingress had here."""
        lost = [request for request in self.book.by_id.values() if request.owner is owner]
        for request in lost:
            self.counters.cancelled += 1
            self._take_back(request)
        if lost:
            self.dispatch()

    # --- from the engine

    def engine_up(self, engine: EnginePort) -> None:
        """An engine serves (again): what is queued may go."""
        self.engine = engine
        self.counters.engine_starts += 1
        self.last_frame_ms = self._clock_ms()
        self.planner.on_engine(engine.info)
        self.dispatch()

    def engine_lost(self) -> None:
        """The engine is gone: end what it had and what waits, refuse what had no size yet.

        What waits is the ingress' to place again: on a peer, or here once an engine is back, whichever is
        sooner. Its place in the order goes with it, since that comes from the time it has left.
        """
        if self.engine is None:
            return
        self.engine = None
        self.counters.engine_losses += 1
        for request in list(self.book.admitted()):
            self.end(request, RefusalCode.ENGINE_FAILED, answers.FAILED)
        for request in list(self.book.rendering.values()):
            self.end(request, RefusalCode.NO_EXECUTORS, answers.NO_ENGINE)

    def rendered(self, batch: Iterable[engine_pb2.Rendered]) -> None:
        """Sizes arrived: admit and enqueue, or refuse."""
        now_ms = self.last_frame_ms = self._clock_ms()
        measured: dict[str, Tracked] = {}
        for rendered in batch:
            request = self.book.rendering.get(rendered.request_id)
            if request is None:
                continue
            if rendered.HasField("error"):
                error = rendered.error
                code = known_code(error.code)
                self._refuse_entered(request, Refusal(code, error.message, error.param or None))
            else:
                self._measure(request, rendered, now_ms)
                measured[request.request_id] = request
        self._decide(list(measured.values()), now_ms)
        self.dispatch()

    def frame(self, frame: work_pb2.Frame) -> list[IngressPort | None]:
        """Follow one engine step; answers whose each output is, None for output nobody may see."""
        now_ms = self.last_frame_ms = self._clock_ms()
        counters = self.counters
        counters.frames += 1
        by_id = self.book.by_id
        owners: list[IngressPort | None] = []
        for output in frame.outputs:
            request = by_id.get(output.request_id)
            if request is None or request.attempt != output.attempt or request.stage is not Stage.DISPATCHED:
                counters.stale_outputs += 1
                owners.append(None)
                continue
            owners.append(request.owner)
            tokens = len(output.token_ids)
            if tokens:
                self._progress(request, tokens, now_ms)
                counters.tokens += tokens
            if output.final:
                self._finish(request, output, now_ms)
        facts = frame.facts
        for preemption in facts.preemptions:
            self._preempted(preemption)
        for progress in facts.progress:
            request = by_id.get(progress.request_id)
            if request is not None and request.stage is Stage.DISPATCHED:
                request.phase = Phase.PREFILL
                request.computed_tokens = progress.computed_tokens
                request.changed()
        self.planner.learn_step(facts, now_ms)
        return owners

    # --- time

    def tick(self, elapsed_ms: float) -> None:
        """Advance back-pressure and end what can no longer start in time."""
        now_ms = self._clock_ms()
        serving = self.engine is not None
        self.pressure.advance(elapsed_ms if serving else 0.0, empty=not self.book.by_id)
        for request in self.dispatcher.expired(now_ms):
            self.end(request, RefusalCode.DEADLINE_EXPIRED, answers.EXPIRED)
        self.dispatch()

    def dispatch(self) -> None:
        """Hand the engine what it has places for."""
        if self.engine is not None and self.book.queued:
            now_ms = self._clock_ms()
            if self._settings.pass_through:
                self.dispatcher.hand_over_all(self.engine, now_ms)
                return
            for request in self.dispatcher.fill_window(self.engine, now_ms):
                self.end(request, RefusalCode.DEADLINE_EXPIRED, answers.EXPIRED)

    def end_all(self) -> None:
        """The process goes: end whatever is left with a well-formed error."""
        for request in list(self.book.by_id.values()):
            self.end(request, RefusalCode.SHUTTING_DOWN, answers.STOPPED)

    def end(self, request: Tracked, code: RefusalCode, message: str) -> None:
        """End a request with an error: a refusal before it was admitted, an output afterwards."""
        if request.stage is Stage.RENDERING:
            self._refuse_entered(request, Refusal(code, message, retry_after_ms=self._retry_after_ms()))
            return
        self.counters.refused[code.value] += 1
        self._take_back(request)
        request.owner.frame(answers.failed(request, code, message))

    # --- the way of a request

    def _enter(self, submit: work_pb2.Submit, owner: IngressPort) -> None:
        promise = read_promise(submit)
        known = self.book.by_id.get(submit.request_id)
        if known is not None:
            if known.attempt == submit.attempt:
                self.counters.duplicates += 1  # the first one is or will be answered
                return
            if known.attempt > submit.attempt:
                message = f"attempt {submit.attempt} is older than attempt {known.attempt}"
                raise InvalidSubmitError(RefusalCode.INVALID_REQUEST, message, "attempt")
            self._take_back(known)
        if submit.attempt <= self._over.get(submit.request_id, -1):
            message = f"attempt {submit.attempt} is over: the engine takes an attempt once"
            raise InvalidSubmitError(RefusalCode.INVALID_REQUEST, message, "attempt")
        refusal = self._closed(len(submit.body), promise.slo.rank)
        if refusal is not None:
            self._refuse(submit, owner, refusal)
            return
        now_ms = self._clock_ms()
        self._sequence += 1
        request = Tracked(
            request_id=submit.request_id,
            attempt=submit.attempt,
            owner=owner,
            submit=submit,
            slo=promise.slo,
            skip_admission=submit.admission == work_pb2.ADMISSION_MODE_SKIP,
            arrived_ms=now_ms - promise.elapsed_ms,
            received_ms=now_ms,
            body_bytes=len(submit.body),
            sequence=self._sequence,
        )
        if promise.since_first_token_ms is not None:
            request.first_token_ms = now_ms - promise.since_first_token_ms
        self.book.enter(request)
        assert self.engine is not None  # _closed refuses otherwise
        self.engine.render(request.request_id, submit.path, submit.body)

    def _closed(self, body_bytes: int, rank: Rank) -> Refusal | None:
        """Why nothing can enter now, whatever it asks for."""
        if self.draining:
            return Refusal(RefusalCode.SHUTTING_DOWN, answers.DRAINING, retry_after_ms=_IDLE_RETRY_MS)
        if self.engine is None:
            return Refusal(RefusalCode.NO_EXECUTORS, answers.NO_ENGINE, retry_after_ms=_IDLE_RETRY_MS)
        if not self.book.fits(body_bytes):
            return Refusal(
                RefusalCode.TOO_LARGE, f"a body of {body_bytes} bytes is larger than the whole queue"
            )
        while not self.book.has_room(body_bytes):
            given_way = self.dispatcher.gives_way(rank)
            if given_way is not None:
                self.end(given_way, RefusalCode.SHED, answers.SHED)
                continue
            return Refusal(
                RefusalCode.SATURATED,
                f"the queue is full: {len(self.book.queued) + len(self.book.rendering)} requests wait",
                retry_after_ms=self._retry_after_ms(),
            )
        return None

    def _measure(self, request: Tracked, rendered: engine_pb2.Rendered, now_ms: float) -> None:
        submit = request.submit
        request.prompt_tokens = max(1, rendered.total_prompt_tokens)
        request.places = max(1, rendered.choices)
        request.max_tokens = max(1, rendered.max_tokens)
        request.resumable = rendered.resumable
        submit.prompt_token_ids.MergeFrom(rendered.prompt_token_ids)
        if submit.delivered:
            request.output_tokens = sum(len(group.token_ids) for group in submit.delivered)
        expected = self.planner.expected_output_tokens(
            request.slo, request.output_tokens // request.places, request.max_tokens
        )
        request.expected_output_tokens = max(expected, min(rendered.min_tokens, request.max_tokens))
        submit.expected_output_tokens = request.expected_output_tokens
        request.changed()

    def _decide(self, requests: list[Tracked], now_ms: float) -> None:
        """Admit and enqueue, or refuse, requests that became known together, in their order."""
        if not self._settings.pass_through:
            for request in requests:
                self.pressure.arrive(self.planner.arrive(request.state(), now_ms))
        if not self._settings.enforce:
            for request in requests:
                self._admit(request)
            return
        # What is admitted whatever the prediction says comes first: the others are judged with it there.
        for request in requests:
            if request.skip_admission:
                self._ask([request], now_ms)
                self._admit(request)
        enforced = [request for request in requests if self._is_enforced(request)]
        for request, admission in zip(enforced, self._ask(enforced, now_ms), strict=True):
            if not admission.admitted:
                refusal = admission.refusal or Refusal(RefusalCode.SLO_INFEASIBLE, "cannot be kept")
                self._refuse_entered(request, refusal)
                continue
            self._admit(request)

    def _is_enforced(self, request: Tracked) -> bool:
        """Whether the prediction decides; refuses promises that no measurement backs, where told to."""
        if request.skip_admission:
            return False
        if self._settings.refuse_unmeasured and not (self.planner.trusted or request.slo.best_effort):
            self._refuse_entered(request, Refusal(RefusalCode.SLO_INFEASIBLE, answers.UNMEASURED))
            return False
        return True

    def _ask(self, requests: list[Tracked], now_ms: float) -> tuple[Admission, ...]:
        """Core's answers; every request remembers what was predicted for it."""
        if not requests:
            return ()
        others = [other.state() for other in self.book.admitted()]
        candidates = [request.state() for request in requests]
        admissions, margin_ms = self.planner.admit(candidates, others, now_ms)
        for request, admission in zip(requests, admissions, strict=True):
            request.prediction = admission.prediction
            if request.first_token_ms is None:
                request.step_ttft_ms = admission.prediction.ttft_ms - margin_ms
        return admissions

    def _admit(self, request: Tracked) -> None:
        self.counters.admitted += 1
        self.book.queue(request)
        self.listener.admitted(request)
        request.owner.decide(answers.admitted(request))

    def _progress(self, request: Tracked, tokens: int, now_ms: float) -> None:
        if request.first_token_ms is None:
            request.first_token_ms = now_ms
            if request.prediction is not None:
                self.counters.ttft.observe(request.prediction.ttft_ms, now_ms - request.arrived_ms)
            if request.step_ttft_ms is not None:
                self.planner.learn_first_token(
                    request.slo, now_ms - request.arrived_ms - request.step_ttft_ms
                )
        request.phase = Phase.DECODE
        request.output_tokens += tokens
        request.changed()

    def _preempted(self, preemption: work_pb2.Preemption) -> None:
        request = self.book.by_id.get(preemption.request_id)
        if request is None or request.stage is not Stage.DISPATCHED:
            return
        self.counters.preemptions += 1
        request.preemptions += 1
        request.phase = Phase.WAITING
        request.computed_tokens = 0
        request.changed()

    def _leave(self, request: Tracked, *, finished: bool = False) -> Stage:
        """Out of the book; what the engine saw of it is remembered, so that no attempt is sent twice."""
        stage = self.book.leave(request)
        if stage in (Stage.QUEUED, Stage.DISPATCHED):
            self.listener.left(request, finished=finished)
        if stage is Stage.DISPATCHED:
            over = self._over
            over[request.request_id] = max(request.attempt, over.get(request.request_id, -1))
            over.move_to_end(request.request_id)
            if len(over) > _REMEMBERED_ATTEMPTS:
                over.popitem(last=False)
        return stage

    def _finish(self, request: Tracked, output: work_pb2.Output, now_ms: float) -> None:
        self._leave(request, finished=not output.HasField("error"))
        if output.HasField("error"):
            self.counters.refused[known_code(output.error.code).value] += 1
            return
        self.counters.finished += 1
        self.planner.lengths.observe(request.slo.contract, max(1, request.output_tokens // request.places))
        if request.prediction is not None:
            self.counters.e2e.observe(request.prediction.e2e_ms, now_ms - request.arrived_ms)
            gaps = request.output_tokens // request.places - 1
            if gaps > 0 and request.first_token_ms is not None:
                self.counters.itl.observe(request.prediction.itl_ms, (now_ms - request.first_token_ms) / gaps)

    def _take_back(self, request: Tracked) -> None:
        """Out of the book, and out of the engine if it is there."""
        if self._leave(request) is Stage.DISPATCHED and self.engine is not None:
            self.engine.cancel(request.request_id, request.attempt)

    def _refuse(self, submit: work_pb2.Submit, owner: IngressPort, refusal: Refusal) -> None:
        self.counters.refused[refusal.code.value] += 1
        owner.decide(answers.refused(submit.request_id, submit.attempt, refusal))

    def _refuse_entered(self, request: Tracked, refusal: Refusal) -> None:
        self.counters.refused[refusal.code.value] += 1
        self.book.leave(request)
        request.owner.decide(answers.refused(request.request_id, request.attempt, refusal, request))

    def _retry_after_ms(self) -> float:
        """When asking again may help: once what waits now has gone."""
        return max(_IDLE_RETRY_MS, self.dispatcher.backlog_ms())
