"""A make-believe engine batch: first come first served, chunked prefill, one token per sequence and step.

Pure state: the service decides when a step happens and sends what it returns. One owner, one thread.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from superinfer_executor.stub.answers import Answer, Words
from superinfer_executor.stub.bodies import BadBodyError, StubBody, read_body
from superinfer_executor.stub.settings import StubSettings
from superinfer_proto.v1 import slo_pb2, work_pb2


@dataclass(slots=True)
class _Request:
    request_id: str
    attempt: int
    body: StubBody
    answer: Answer
    prompt_tokens: int
    tokens: list[int]
    finish_reasons: list[str]
    open_choices: int
    said_role: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Sequence:
    request: _Request
    choice: int
    prefill_left: int
    computed: int
    limit: int
    gone: bool = False


class Batch:
    """Everything the stub is working on for one sidecar."""

    def __init__(self, settings: StubSettings, words: Words) -> None:
        self._settings = settings
        self._words = words
        self._requests: dict[str, _Request] = {}
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._failed: list[work_pb2.Output] = []

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._waiting or self._failed)

    def submit(self, submit: work_pb2.Submit) -> None:
        """Take a request; a bad one becomes an error output of the next step."""
        known = self._requests.get(submit.request_id)
        if known is not None:
            if known.attempt >= submit.attempt:
                return
            self._drop(known)
        try:
            body = read_body(submit.path, submit.body, max_model_len=self._settings.max_model_len)
        except BadBodyError as bad:
            error = slo_pb2.Error(code=bad.code, message=bad.message, param=bad.param)
            self._failed.append(
                work_pb2.Output(request_id=submit.request_id, attempt=submit.attempt, final=True, error=error)
            )
            return
        self._enqueue(submit, body)

    def cancel(self, cancel: work_pb2.Cancel) -> None:
        """Forget a request (this attempt or a lower one) before the next step."""
        known = self._requests.get(cancel.request_id)
        if known is not None and known.attempt <= cancel.attempt:
            self._drop(known)

    def step(self, number: int) -> tuple[work_pb2.Frame, float]:
        """Advance everything by one step: the frame to send and how long the step should have taken."""
        self._fill()
        frame = work_pb2.Frame(step=number)
        frame.outputs.extend(self._failed)
        self._failed.clear()
        facts = frame.facts
        budget = self._settings.max_num_batched_tokens
        decoding = [sequence for sequence in self._running if not sequence.prefill_left]
        budget -= len(decoding)
        self._decode(frame, decoding)
        prefill_tokens, context2 = self._prefill(frame, budget)
        duration_ms = self._settings.step_duration_ms(
            decode_seqs=len(decoding), prefill_tokens=prefill_tokens
        )
        self._running = [sequence for sequence in self._running if not sequence.gone]
        facts.step_ms = duration_ms
        facts.prefill_tokens = prefill_tokens
        facts.prefill_context_tokens2 = context2
        facts.decode_seqs = len(decoding)
        facts.decode_context_tokens = sum(sequence.computed for sequence in decoding)
        facts.running = len(self._running)
        facts.waiting = len(self._waiting)
        facts.kv_usage = min(1.0, sum(s.computed for s in self._running) / self._settings.kv_total_tokens)
        return frame, duration_ms

    def _enqueue(self, submit: work_pb2.Submit, body: StubBody) -> None:
        delivered = [0] * body.choices
        finished = [""] * body.choices
        for group in submit.delivered:
            if group.choice < body.choices:
                delivered[group.choice] += len(group.token_ids)
                finished[group.choice] = group.finish_reason or finished[group.choice]
        request = _Request(
            request_id=submit.request_id,
            attempt=submit.attempt,
            body=body,
            answer=Answer(
                body, submit.request_id, submit.created_s, self._settings.served_model_name, self._words
            ),
            prompt_tokens=len(body.prompt_token_ids),
            tokens=delivered,
            finish_reasons=finished,
            open_choices=body.choices,
        )
        self._requests[submit.request_id] = request
        eos = self._settings.eos_after
        limit = body.max_tokens if body.ignore_eos or not eos else min(body.max_tokens, eos)
        for choice in range(body.choices):
            # A finished choice is replayed as one that stops at once, so that the request ends by one path.
            prefill = request.prompt_tokens + delivered[choice]
            self._waiting.append(_Sequence(request, choice, prefill, 0, limit))
            if delivered[choice]:
                request.said_role.add(choice)

    def _drop(self, request: _Request) -> None:
        del self._requests[request.request_id]
        self._running = [sequence for sequence in self._running if sequence.request is not request]
        self._waiting = deque(sequence for sequence in self._waiting if sequence.request is not request)

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._settings.max_num_seqs:
            self._running.append(self._waiting.popleft())

    def _decode(self, frame: work_pb2.Frame, decoding: list[_Sequence]) -> None:
        add = frame.outputs.add
        for sequence in decoding:
            self._token(add, sequence)

    def _prefill(self, frame: work_pb2.Frame, budget: int) -> tuple[int, float]:
        total, context2 = 0, 0.0
        for sequence in self._running:
            left = sequence.prefill_left
            if not left or sequence.gone:
                continue
            chunk = min(left, budget - total)
            if chunk <= 0:
                break
            context2 += chunk * (sequence.computed + chunk / 2)
            total += chunk
            sequence.computed += chunk
            sequence.prefill_left = left - chunk
            if left == chunk:
                self._token(frame.outputs.add, sequence)
            else:
                request_id = sequence.request.request_id
                frame.facts.progress.add(request_id=request_id, computed_tokens=sequence.computed)
        return total, context2

    def _token(self, add: Callable[..., work_pb2.Output], sequence: _Sequence) -> None:
        request, choice = sequence.request, sequence.choice
        number = request.tokens[choice]
        sequence.computed += 1
        if request.finish_reasons[choice] or number >= sequence.limit:
            request.finish_reasons[choice] = request.finish_reasons[choice] or self._reason(request, number)
            self._close(add, sequence)
            return
        done = number + 1 >= sequence.limit
        reason = self._reason(request, number + 1) if done else ""
        chunk = b""
        if request.body.stream:
            chunk = request.answer.token_chunk(choice, number, reason)
            if choice not in request.said_role:
                request.said_role.add(choice)
                role = request.answer.role_chunk(choice)
                if role:
                    add(request_id=request.request_id, attempt=request.attempt, choice=choice, chunk=role)
        add(
            request_id=request.request_id,
            attempt=request.attempt,
            choice=choice,
            first_token=number,
            token_ids=(number,),
            text_end=self._words.end(number),
            chunk=chunk,
            finish_reason=reason,
        )
        request.tokens[choice] = number + 1
        if done:
            request.finish_reasons[choice] = reason
            self._close(add, sequence)

    def _reason(self, request: _Request, tokens: int) -> str:
        return "length" if tokens >= request.body.max_tokens else "stop"

    def _close(self, add: Callable[..., work_pb2.Output], sequence: _Sequence) -> None:
        sequence.gone = True
        request = sequence.request
        request.open_choices -= 1
        if request.open_choices:
            return
        del self._requests[request.request_id]
        completion = sum(request.tokens)
        usage = {
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": request.prompt_tokens + completion,
        }
        if request.body.stream:
            chunk = request.answer.usage_chunk(usage)
        else:
            chunk = request.answer.final_body(request.tokens, request.finish_reasons, usage)
        output = add(request_id=request.request_id, attempt=request.attempt, chunk=chunk, final=True)
        output.usage.prompt_tokens = request.prompt_tokens
        output.usage.completion_tokens = completion
