"""One request between the client and the executors: its attempts, its ledger, its way out.

Promises: outputs of an attempt that is not the current one are ignored; what the ledger has is never
written again; chunks go to the client from the frame loop without waking a task per token; whoever waits on
the request is woken for its first output, its decision, its end, an interruption (see resumption), and its
client's leaving, nothing else.
Concurrency: owned by the event loop. `on_*` methods are plain calls made by links and connections.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_ingress.http.connection import ClientWriter
from superinfer_ingress.interruption import CAUSES, Cause, Interruption, Resume
from superinfer_ingress.ledger import LedgerBudget, RequestLedger, Verdict
from superinfer_proto.v1 import sidecar_pb2, work_pb2

_MAX_EARLY_CHUNKS: Final = 4096
"""Chunks that may wait for the response to begin; it begins within one turn of the event loop."""


class Ending(Enum):
    """Why a request is over."""

    FINISHED = auto()
    FAILED = auto()  # an executor said so, or it could not go on elsewhere
    CLIENT_LEFT = auto()
    CLIENT_TOO_SLOW = auto()


class Executor(Protocol):
    """What a request needs of the executor it runs on."""

    @property
    def name(self) -> str:
        """The executor's name, as clients see it."""
        ...

    def cancel(self, request: "InFlight") -> None:
        """Stop the request's current attempt within one engine step."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """A sidecar's answer to a submit, as far as the ingress uses it."""

    admitted: bool
    ttft_ms: float
    itl_ms: float
    e2e_ms: float
    slack_ms: float
    prompt_tokens: int
    refusal: Refusal | None


class InFlight:
    """A request that has been, or is about to be, submitted."""

    __slots__ = (
        "_continued",
        "_early_chunks",
        "_resuming",
        "_waiter",
        "attempt",
        "begun",
        "decision",
        "ending",
        "executor",
        "failure",
        "final_body",
        "interruption",
        "leaves",
        "ledger",
        "preempted",
        "prompt_tokens",
        "request_id",
        "resumable",
        "resumes",
        "stream",
        "usage",
        "writer",
    )

    def __init__(self, request_id: str, writer: ClientWriter, *, stream: bool, budget: LedgerBudget) -> None:
        self.request_id = request_id
        self.writer = writer
        self.stream = stream
        self.attempt = 0
        self.begun = False
        """Its engine has been given the current attempt; taken for granted of the first."""
        self.executor: Executor | None = None
        self.ledger = RequestLedger(budget)
        self.decision: Decision | None = None
        self.ending: Ending | None = None
        self.failure: Refusal | None = None
        self.interruption: Interruption | None = None
        """Set while no attempt runs although the request is not over; a new attempt clears it."""
        self.leaves = False
        """Its executor drains."""
        self.resumes: list[Resume] = []
        self.final_body = b""
        self.usage: work_pb2.Usage | None = None
        self.preempted = 0
        self.prompt_tokens = 0
        self.resumable = False
        self._continued = False
        self._resuming: Resume | None = None
        self._early_chunks: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        writer.on_gone = self.on_client_left

    @property
    def has_output(self) -> bool:
        """Whether something waits to be, or was, written to the client."""
        return bool(self._early_chunks) or self.writer.begun or self.final_body != b""

    @property
    def client_has_something(self) -> bool:
        """Whether bytes of the answer are on their way to the client, and cannot be unsaid."""
        return bool(self._early_chunks) or self.writer.begun

    # Waiting: one future, made anew by whoever waits.

    async def wait(self, done: Callable[["InFlight"], bool], timeout_s: float | None = None) -> bool:
        """Wait until `done(self)`; False when `timeout_s` passed first."""
        if done(self):
            return True
        loop = asyncio.get_running_loop()
        passed = False

        def time_out() -> None:
            # The timer itself says that time is up: the loop's clock is coarse (whole milliseconds under
            # uvloop), and a comparison with it that comes out just too early would wait for ever.
            nonlocal passed
            passed = True
            self._wake()

        timer = None if timeout_s is None else loop.call_later(timeout_s, time_out)
        try:
            while not done(self):
                if passed:
                    return False
                self._waiter = loop.create_future()
                await self._waiter
            return True
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # Attempts.

    def begin_attempt(self, executor: Executor) -> int:
        """A new attempt on `executor`; outputs of earlier ones are ignored from here on."""
        self.attempt += 1
        self.executor = executor
        self.begun = self.attempt == 1
        self.decision = None
        self.interruption = None
        self.leaves = False
        self._continued = self.client_has_something or self.ledger.tokens > 0
        return self.attempt

    def resumes_with(self, resume: Resume) -> None:
        """The attempt that begins now goes on where an earlier one ended."""
        self.resumes.append(resume)
        self._resuming = resume

    def start_over(self) -> None:
        """Forget what was generated: the client has nothing of it."""
        self.ledger.forget()

    def flush(self) -> bool:
        """The status line is out: write what waited for it. False: the client reads too slowly."""
        chunks, self._early_chunks = self._early_chunks, []
        return not chunks or self.writer.chunk(b"".join(chunks))

    # What links and connections report.

    def on_decision(self, decision: sidecar_pb2.Decision) -> None:
        """The sidecar answered the current attempt."""
        prediction = decision.prediction
        self.decision = Decision(
            admitted=decision.admitted,
            ttft_ms=prediction.ttft_ms,
            itl_ms=prediction.itl_ms,
            e2e_ms=prediction.e2e_ms,
            slack_ms=prediction.slack_ms,
            prompt_tokens=decision.prompt_tokens,
            refusal=None if decision.admitted else _refusal_of(decision.refusal),
        )
        self.prompt_tokens = decision.prompt_tokens or self.prompt_tokens
        if decision.admitted:
            self.resumable = decision.resumable
        if self.attempt > 1 or not decision.admitted:
            self._wake()

    def on_output(self, output: work_pb2.Output, now_ms: float) -> None:
        """One choice moved on by one step. The hot path."""
        if self.ending is not None or self.interruption is not None:
            return
        if output.final and output.HasField("error"):
            # Tokens that came with it were never made into text: they do not count as delivered.
            self._on_error(output, now_ms)
            return
        if not self._accept(output, now_ms):
            if output.final:  # nothing more comes of this attempt, and the answer has no end
                self.interrupt(Cause.GAP, "the executor ended with tokens it had sent before", now_ms)
            return
        if self._resuming is not None:
            self._resuming.gap_ms = now_ms - self._resuming.lost_at_ms
            self._resuming = None
        if output.final:
            self._on_final(output)
            return
        chunk = output.chunk
        if chunk:
            if self.writer.begun:
                if not self.writer.chunk(chunk):
                    self.on_client_too_slow()
            elif self.stream:
                self._keep_early(chunk)

    def _accept(self, output: work_pb2.Output, now_ms: float) -> bool:
        """Write an output to the ledger; False where the client has it already or must not get it."""
        token_ids = output.token_ids
        if token_ids:
            verdict = self.ledger.record_tokens(output.choice, output.first_token, token_ids, now_ms)
            if verdict is not Verdict.DELIVER:
                if verdict is Verdict.GAP:
                    self.interrupt(Cause.GAP, "the executor skipped tokens of the answer", now_ms)
                return False
            if self._continued or output.finish_reason:
                self._record_end(output)
            return True
        if output.final and not output.finish_reason:
            return True
        if self._continued and not output.final and self._repeated(output):
            return False
        self._record_end(output)
        return True

    def interrupt(self, cause: Cause, why: str, now_ms: float) -> None:
        """The current attempt is over, the request is not: whoever waits on it takes it elsewhere."""
        if self.ending is not None or self.interruption is not None:
            return
        self.interruption = Interruption(cause, why, now_ms, self.begun)
        self.leaves = False
        if self.executor is not None:
            self.executor.cancel(self)
        self._wake()

    def on_draining(self) -> None:
        """The executor wants to end: the request may go on there, and better goes on elsewhere."""
        if self.ending is None and self.interruption is None:
            self.leaves = True
            self._wake()

    def on_executor_lost(self, now_ms: float) -> None:
        """The stream to the executor broke, or its engine died under the request."""
        name = self.executor.name if self.executor else "?"
        self.interrupt(Cause.EXECUTOR_LOST, f"executor {name} was lost under the request", now_ms)

    def give_up(self, refusal: Refusal) -> None:
        """Going on is over."""
        if self.ending is None:
            self.failure = refusal
            self._end(Ending.FAILED)

    def on_client_left(self) -> None:
        """Nobody reads any more: stop the engine now, not at the next token."""
        if self.ending is None:
            self._end(Ending.CLIENT_LEFT)

    def on_client_too_slow(self) -> None:
        """The client does not read what it asked for."""
        if self.ending is None:
            self._end(Ending.CLIENT_TOO_SLOW)

    def on_shutdown(self) -> None:
        """The process ends before the request does."""
        if self.ending is None:
            self._fail(RefusalCode.SHUTTING_DOWN, "this ingress shut down before the answer was complete")

    def stop(self) -> None:
        """Whatever runs for this request shall end; safe to call at any time."""
        if self.executor is not None and self.ending is not Ending.FINISHED:
            self.executor.cancel(self)
        self.writer.on_gone = None

    def _record_end(self, output: work_pb2.Output) -> None:
        self.ledger.record_end(
            output.choice, output.text_end, output.tool_end, output.finish_reason, output.stop_reason
        )

    def _repeated(self, output: work_pb2.Output) -> bool:
        return self.ledger.repeats(output.choice, output.text_end, output.tool_end, output.finish_reason)

    def _on_error(self, output: work_pb2.Output, now_ms: float) -> None:
        code = _code_of(output.error.code)
        cause = CAUSES.get(code)
        if cause is not None:
            self.interrupt(cause, output.error.message, now_ms)
            return
        self._read_usage(output)
        self.failure = Refusal(code, output.error.message, output.error.param or None)
        self.ending = Ending.FAILED
        self._wake()

    def _on_final(self, output: work_pb2.Output) -> None:
        self._read_usage(output)
        self.final_body = output.chunk
        self.ending = Ending.FINISHED
        self._wake()

    def _read_usage(self, output: work_pb2.Output) -> None:
        if output.HasField("usage"):
            self.usage = output.usage
            self.preempted += output.usage.preemptions
            self.prompt_tokens = output.usage.prompt_tokens or self.prompt_tokens

    def _keep_early(self, chunk: bytes) -> None:
        if len(self._early_chunks) >= _MAX_EARLY_CHUNKS:
            self._end(Ending.CLIENT_TOO_SLOW)
            return
        self._early_chunks.append(chunk)
        if len(self._early_chunks) == 1:
            self._wake()

    def _fail(self, code: RefusalCode, message: str) -> None:
        self.failure = Refusal(code, message)
        self._end(Ending.FAILED)

    def _end(self, ending: Ending) -> None:
        self.ending = ending
        if self.executor is not None:
            self.executor.cancel(self)
        self._wake()


def _code_of(code: str) -> RefusalCode:
    """A code from the wire; one we do not know is an engine's failure, never a new label."""
    try:
        return RefusalCode(code)
    except ValueError:
        return RefusalCode.ENGINE_FAILED


def _refusal_of(refusal: sidecar_pb2.Refusal) -> Refusal:
    code = _code_of(refusal.error.code)
    has_figures = bool(refusal.metric)
    return Refusal(
        code=code,
        message=refusal.error.message or code.value,
        param=refusal.error.param or None,
        metric=refusal.metric or None,
        predicted_ms=refusal.predicted_ms if has_figures else None,
        required_ms=refusal.required_ms if has_figures else None,
        tightest_ms=refusal.tightest_ms if has_figures and refusal.tightest_ms > 0 else None,
        feasible_when_idle=refusal.feasible_when_idle if code is RefusalCode.SLO_INFEASIBLE else None,
        retry_after_ms=refusal.retry_after_ms if refusal.retry_after_ms > 0 else None,
        harm=refusal.harm,
    )
