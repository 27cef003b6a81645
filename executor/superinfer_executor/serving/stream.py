"""One attempt of one request: from a Submit to its final Output.

Promises: every token goes out once, numbered, in the group of its engine step, together with every byte
the serving layer made of it, so that a group is delivered whole or not at all; what was delivered before
a resume does not go out again; exactly one final output unless the request is cancelled. Event loop only.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.refusal import RefusalCode
from superinfer_executor.engine.bodies import Body, parse_body
from superinfer_executor.engine.openai import CREATED_S, OpenAISurface
from superinfer_executor.engine.refusals import RequestRefusedError, refusal_of, refusal_of_info
from superinfer_executor.engine.request import CURRENT_REQUEST, DeliveredGroup
from superinfer_executor.engine.resumable import why_not_resumable
from superinfer_executor.serving.engine_ids import engine_id_of
from superinfer_executor.serving.slo_args import slo_args, tier_rank
from superinfer_proto.v1 import work_pb2

log = logging.getLogger(__name__)

_ERROR_LINE: Final = 'data: {"error"'


@dataclass(slots=True)
class _Choice:
    """Where one choice stands."""

    tokens: int = 0
    text_end: int = 0
    tool_end: int = 0


@dataclass(frozen=True, slots=True)
class StreamHooks:
    """What a stream needs of the service around it."""

    emit: Callable[["Stream", work_pb2.Output], None]
    settle: Callable[[str], None]
    claim: Callable[[str, "Stream"], None]
    now_ms: Callable[[], float]


class Stream:
    """An EngineRequest (engine/request.py) that belongs to a Run stream. See the module."""

    def __init__(
        self,
        submit: work_pb2.Submit,
        surface: OpenAISurface,
        hooks: StreamHooks,
        *,
        owner: Any,
        limit_bytes: int,
        scheduler: str,
    ) -> None:
        self.request_id = submit.request_id
        self.attempt = submit.attempt
        self.owner = owner
        self.engine_ids: set[str] = set()
        self.cancelled = False
        self.preemptions = 0
        self._submit = submit
        self._surface = surface
        self._hooks = hooks
        self._limit_bytes = limit_bytes
        self._scheduler = scheduler
        self._received_ms = hooks.now_ms()
        self._delivered = tuple(
            DeliveredGroup(group.choice, tuple(group.token_ids), group.finish_reason, group.stop_reason)
            for group in submit.delivered
        )
        self._choices: dict[int, _Choice] = {}
        self._body: Body | None = None
        self._prompts = 0
        self._prompts_counted: set[int] = set()
        self._per_prompt = 1
        self._chunks: list[str] = []
        self._pending: work_pb2.Output | None = None
        self._pending_id = ""
        self._drops_chunks = False
        self._counts_chunks = False
        self._usage = work_pb2.Usage()
        self._failure: RequestRefusedError | None = None

    # -- what the engine asks and tells (EngineRequest) --

    @property
    def streams(self) -> bool:
        """Whether the client streams."""
        return self._body is not None and bool(self._body.request.stream)

    @property
    def interleaved(self) -> bool:
        """Several prompts: vLLM reads their generators ahead, so chunks cannot be told apart by step."""
        return self._prompts > 1

    @property
    def parsed(self) -> bool:
        """Chat content behind a tool or reasoning parser."""
        return self._counts_chunks

    @property
    def priority(self) -> int:
        """Tier rank where vLLM's own priority policy decides."""
        return tier_rank(self._submit.slo) if self._scheduler == "priority" else 0

    @property
    def delivered(self) -> Sequence[DeliveredGroup]:
        """What an earlier attempt delivered."""
        return self._delivered

    def extra_args(self) -> Mapping[str, Any]:
        """The promise at this moment."""
        return slo_args(self._submit, self._received_ms, self._hooks.now_ms())

    def engine_id(self, prompt: int, choice: int) -> str:
        """Unique over requests, attempts and choices; the engine's facts name it."""
        engine_id = self._engine_id_of(prompt * self._per_prompt + choice)
        self.engine_ids.add(engine_id)
        self._hooks.claim(engine_id, self)
        return engine_id

    def prompt_number(self) -> int:
        """Prompts are numbered in the order vLLM asks for them."""
        number = self._prompts
        self._prompts += 1
        return number

    def told(self, prompt: int, output: Any, *, replayed: bool) -> None:
        """A step's tokens of one choice."""
        (completion,) = output.outputs
        number = prompt * self._per_prompt + completion.index
        choice = self._choices.get(number)
        if choice is None:
            choice = self._choices[number] = _Choice()
        # Any choice of a prompt may be the first to speak, and only its output need carry the prompt.
        if prompt not in self._prompts_counted and output.prompt_token_ids:
            self._prompts_counted.add(prompt)
            self._usage.prompt_tokens += len(output.prompt_token_ids)
        first_token = choice.tokens
        choice.tokens += len(completion.token_ids)
        if not self._counts_chunks:
            choice.text_end += len(completion.text)
        if output.num_cached_tokens is not None and not replayed:
            self._usage.cached_tokens = output.num_cached_tokens
        self._usage.completion_tokens += len(completion.token_ids)
        self._pending_id = self._engine_id_of(number)
        self._drops_chunks = replayed
        if replayed:
            self._pending = None
            return
        self._pending = work_pb2.Output(
            request_id=self.request_id,
            attempt=self.attempt,
            choice=number,
            first_token=first_token,
            token_ids=completion.token_ids,
            text_end=choice.text_end,
            finish_reason=completion.finish_reason or "",
            stop_reason="" if completion.stop_reason is None else str(completion.stop_reason),
        )
        if self.interleaved:
            self._send_pending()
            self._hooks.settle(self._pending_id)

    def settled(self, prompt: int, output: Any) -> None:
        """All chunks of that step are made."""
        if not self.interleaved:
            self._send_pending()
            self._hooks.settle(self._pending_id)

    def failed(self, error: BaseException) -> None:
        """The first failure is the one to report."""
        self._failure = self._failure or refusal_of(error)

    # -- the life of the request --

    async def run(self) -> None:
        """Serve it to its end; never raises."""
        CURRENT_REQUEST.set(self)
        CREATED_S.set(self._submit.created_s)
        try:
            await self._serve()
        except asyncio.CancelledError:
            self.cancelled = True
        except Exception as error:  # noqa: BLE001 (every failure becomes an error output)
            self.failed(error)
        self._finish()

    async def _serve(self) -> None:
        body = parse_body(self._submit.path, self._submit.body, limit_bytes=self._limit_bytes)
        self._take(body)
        answer = await self._surface.answer(body)
        if not self.streams:
            self._chunks.append(answer.model_dump_json())
            return
        async for line in answer:
            if line.startswith(_ERROR_LINE):
                self._take_error_line(line)
                return
            self._chunks.append(line)
            if self.interleaved:
                self._send_chunks()

    def _take(self, body: Body) -> None:
        """Make the body ours: its id, salt and priority are not the client's to choose."""
        request, submit = body.request, self._submit
        if submit.delivered:
            self._check_resumable(body)
        request.request_id = self.request_id
        request.priority = self.priority
        if submit.cache_salt:
            request.cache_salt = ":".join(filter(None, (submit.cache_salt, request.cache_salt)))
        self._body = body
        self._per_prompt = request.n or 1
        self._counts_chunks = body.chat and self._surface.parses_output and bool(request.stream)
        if submit.prompt_token_ids:
            self._surface.use_rendered_prompt(body, list(submit.prompt_token_ids))

    def _check_resumable(self, body: Body) -> None:
        """Going on inexactly would be worse than not going on."""
        reason = why_not_resumable(body, self._scheduler)
        if reason is not None:
            raise RequestRefusedError(RefusalCode.NOT_RESUMABLE, f"{reason}: cannot be resumed exactly")
        if any(group.choice >= (body.request.n or 1) for group in self._delivered):
            raise RequestRefusedError(
                RefusalCode.INVALID_REQUEST, "tokens were delivered of a choice the request does not have"
            )

    def _take_error_line(self, line: str) -> None:
        """A failure inside a stream is an event for vLLM: ours is an error output instead."""
        if self._failure is None:
            info = json.loads(line.removeprefix("data: "))["error"]
            self._failure = refusal_of_info(
                str(info.get("message", "")), int(info.get("code", 500)), info.get("param")
            )

    def _finish(self) -> None:
        if not self.cancelled:
            self._send_last()
        for engine_id in self.engine_ids:
            self._hooks.settle(engine_id)

    def _send_last(self) -> None:
        output = self._pending or work_pb2.Output(request_id=self.request_id, attempt=self.attempt)
        self._pending = None
        output.final = True
        if self._failure is not None:
            output.error.CopyFrom(self._failure.as_proto)
        else:
            # A wholly replayed request ends with the events that follow its last token.
            output.chunk = self._tail() if self._drops_chunks and self.streams else self._take_chunks()
        self._count(output)
        self._usage.preemptions = self.preemptions
        output.usage.CopyFrom(self._usage)
        self._hooks.emit(self, output)

    def _send_pending(self) -> None:
        if self._drops_chunks:
            for line in self._chunks if self._counts_chunks else ():
                self._count_line(line)
            self._chunks.clear()
            return
        output, self._pending = self._pending, None
        if output is None:
            return
        if not self.interleaved:
            output.chunk = self._take_chunks()
            self._count(output)
        self._hooks.emit(self, output)

    def _send_chunks(self) -> None:
        output = work_pb2.Output(request_id=self.request_id, attempt=self.attempt, chunk=self._take_chunks())
        self._hooks.emit(self, output)

    def _take_chunks(self) -> bytes:
        chunk = "".join(self._chunks).encode()
        if not self._counts_chunks:
            self._chunks.clear()
        return chunk

    def _tail(self) -> bytes:
        """Events after the last choice's end: those without choices (usage, [DONE])."""
        return "".join(line for line in self._chunks if '"choices":[{' not in line).encode()

    def _count(self, output: work_pb2.Output) -> None:
        """Offsets of chat content behind a parser: only the chunks know them."""
        if not self._counts_chunks:
            return
        for line in self._chunks:
            self._count_line(line)
        self._chunks.clear()
        choice = self._choices.get(output.choice)
        if choice is not None:
            output.text_end, output.tool_end = choice.text_end, choice.tool_end

    def _count_line(self, line: str) -> None:
        if line.startswith("data: {"):
            for each in json.loads(line[6:])["choices"]:
                delta, choice = each["delta"], self._choices.setdefault(each["index"], _Choice())
                choice.text_end += len(delta.get("content") or "") + len(delta.get("reasoning") or "")
                for call in delta.get("tool_calls") or ():
                    choice.tool_end += len((call.get("function") or {}).get("arguments") or "")

    def _engine_id_of(self, number: int) -> str:
        return engine_id_of(self.request_id, self.attempt, number)
