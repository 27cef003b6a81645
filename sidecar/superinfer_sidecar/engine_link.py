"""The connection to the engine: found again for ever, one port per generation.

A broken stream, a hang or an engine that restarts ends the port; the desk is told once and a new one follows
when an engine answers again. One that hung and answers as the same is left alone for a while that doubles.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from google.protobuf.message import DecodeError
from typing_extensions import override

from superinfer_proto.duplex import DuplexCall, open_call
from superinfer_proto.v1 import engine_pb2, work_pb2
from superinfer_sidecar.outbox import Outbox

_LOG = logging.getLogger(__name__)
_RUN: Final = "/superinfer.v1.Engine/Run"
_RENDER: Final = "/superinfer.v1.Engine/Render"
_MESSAGE_BYTES: Final = 8 << 20
"""A message is closed once it is so large: far below what gRPC takes, also with one large body more."""
_TOKEN_ID_BYTES: Final = 5
_CALM_PER_S: Final = 800.0
_FIRST_RETRY_S: Final = 0.05
_LAST_RETRY_S: Final = 1.0
_GREETING_S: Final = 30.0
_FIRST_PENALTY_S: Final = 5.0
_LONGEST_PENALTY_S: Final = 300.0


class _RenderOutbox(Outbox):
    """Bodies whose size is asked for."""

    def __init__(self) -> None:
        super().__init__(_CALM_PER_S)
        self.requests: deque[engine_pb2.RenderRequest] = deque()

    @override
    def take(self) -> bytes:
        """All of them as one batch, or as many as make a message of reasonable size."""
        batch = engine_pb2.RenderBatch()
        size = 0
        while self.requests and size < _MESSAGE_BYTES:
            request = self.requests.popleft()
            size += len(request.body)
            batch.requests.append(request)
        if self.requests:
            self.poke()
        return batch.SerializeToString()


class EngineLink(Outbox):
    """Implements EnginePort for one generation of the engine."""

    def __init__(self, info: engine_pb2.EngineInfo, pid: int | None = None) -> None:
        super().__init__(_CALM_PER_S)
        self._info = info
        self._pid = pid
        self._submits: dict[str, work_pb2.Submit] = {}
        self._cancels: list[work_pb2.Cancel] = []
        self.renders = _RenderOutbox()

    @property
    def info(self) -> engine_pb2.EngineInfo:
        """What the engine said about itself."""
        return self._info

    @property
    def pid(self) -> int | None:
        """Its process, where that can be seen from here."""
        return self._pid

    def render(self, request_id: str, path: str, body: bytes) -> None:
        """Ask for the sizes of a body."""
        self.renders.requests.append(engine_pb2.RenderRequest(request_id=request_id, path=path, body=body))
        self.renders.poke()

    def submit(self, submit: work_pb2.Submit) -> None:
        """Give work."""
        self._submits[submit.request_id] = submit
        self.poke()

    def cancel(self, request_id: str, attempt: int) -> None:
        """Take work back; what was not written yet is not written at all."""
        waiting = self._submits.get(request_id)
        if waiting is not None and waiting.attempt <= attempt:
            del self._submits[request_id]
            return
        self._cancels.append(work_pb2.Cancel(request_id=request_id, attempt=attempt))
        self.poke()

    @override
    def take(self) -> bytes:
        """All cancels and submits as one message, or as many as make one of reasonable size."""
        message = engine_pb2.ToEngine(cancels=self._cancels)
        self._cancels.clear()
        size = 0
        while self._submits and size < _MESSAGE_BYTES:
            submit = self._submits.pop(next(iter(self._submits)))
            size += len(submit.body) + _TOKEN_ID_BYTES * len(submit.prompt_token_ids)
            message.submits.append(submit)
        if self._submits:
            self.poke()
        return message.SerializeToString()


class EngineConnection:
    """Keeps one engine connected.

    Args:
        target: gRPC address of the engine.
        on_up, on_lost: called with a link once it serves, and once when it is gone.
        on_frame: called with every step's message, decoded and as it came.
        on_rendered: called with every answer about sizes.
    """

    def __init__(
        self,
        target: str,
        *,
        on_up: Callable[[EngineLink], None],
        on_lost: Callable[[], None],
        on_frame: Callable[[work_pb2.Frame, bytes], None],
        on_rendered: Callable[[engine_pb2.RenderedBatch], None],
    ) -> None:
        self._target = target
        self._on_up = on_up
        self._on_lost = on_lost
        self._on_frame = on_frame
        self._on_rendered = on_rendered
        self._give_up = asyncio.Event()
        self._absence = ""
        self._hung = ""
        self._penalty_s = 0.0
        self._hung_until_s = 0.0

    def give_up(self, generation: str) -> None:
        """Drop the engine that hangs. Its successor is welcome at once, itself after a while."""
        again = generation == self._hung
        self._penalty_s = min(_LONGEST_PENALTY_S, self._penalty_s * 2) if again else _FIRST_PENALTY_S
        self._hung = generation
        self._hung_until_s = asyncio.get_running_loop().time() + self._penalty_s
        self._give_up.set()

    def drop(self) -> None:
        """The engine that is connected ends; its socket will close, but that can take a second."""
        self._give_up.set()

    async def run_for_ever(self) -> None:
        """Connect, serve, and start over, until cancelled."""
        retry_s = _FIRST_RETRY_S
        while True:
            self._give_up.clear()
            served = await self._serve()
            retry_s = _FIRST_RETRY_S if served else min(_LAST_RETRY_S, retry_s * 2)
            await asyncio.sleep(retry_s)

    async def _serve(self) -> bool:
        """Serve one connection to its end; answers whether an engine was there."""
        session = _Session(self._on_frame, self._on_rendered)
        try:
            async with asyncio.timeout(_GREETING_S):
                await session.open(self._target)
                info = await session.greeting
                if info.generation == self._hung and self._hung_until_s > asyncio.get_running_loop().time():
                    raise ConnectionError("the engine that hung is still the same")
        except (OSError, TimeoutError) as error:
            session.close()
            self._note_absence(f"{type(error).__name__}: {error}")
            return False
        self._absence = ""
        link = EngineLink(info, session.engine_pid())
        self._on_up(link)
        _LOG.info("engine serves", extra={"generation": info.generation, "model": info.model})
        try:
            await _first_to_end(
                link.write_for_ever(session.run),
                link.renders.write_for_ever(session.render),
                session.closed.wait(),
                self._give_up.wait(),
            )
        finally:
            session.close()
            self._on_lost()
            _LOG.warning("engine lost", extra={"generation": info.generation, "why": session.why})
        return True

    def _note_absence(self, why: str) -> None:
        """Say why there is no engine, once per reason: it may stay away for long."""
        if why != self._absence:
            self._absence = why
            _LOG.info("no engine yet (%s): %s", self._target, why)


class _Session:
    """The two calls of one connection to an engine; once closed it says nothing more."""

    def __init__(
        self,
        on_frame: Callable[[work_pb2.Frame, bytes], None],
        on_rendered: Callable[[engine_pb2.RenderedBatch], None],
    ) -> None:
        self._on_frame = on_frame
        self._on_rendered = on_rendered
        self._calls: list[DuplexCall] = []
        self.greeting: asyncio.Future[engine_pb2.EngineInfo] = asyncio.get_running_loop().create_future()
        self.closed = asyncio.Event()
        self.why = ""

    async def open(self, target: str) -> None:
        """Begin both calls; raises OSError where nobody listens."""
        for method, take in ((_RUN, self._take_run), (_RENDER, self._take_rendered)):
            call = await open_call(target, method, tls=None, on_message=take, on_closed=self._end)
            self._calls.append(call)

    def engine_pid(self) -> int | None:
        """The engine's process, where it can be seen."""
        return self._calls[0].peer_pid()

    async def run(self, data: bytes) -> None:
        """Send one ToEngine."""
        self._calls[0].send(data)

    async def render(self, data: bytes) -> None:
        """Send one RenderBatch."""
        self._calls[1].send(data)

    def close(self) -> None:
        """End both calls; nothing is passed on any more."""
        self._end("closed here")
        for call in self._calls:
            call.abort()

    def _end(self, why: str) -> None:
        if self.closed.is_set():
            return
        self.why = why
        self.closed.set()
        if not self.greeting.done():
            self.greeting.set_exception(ConnectionError(why))
            self.greeting.exception()  # seen: nobody may be waiting any more

    def _take_run(self, raw: bytes) -> None:
        if self.closed.is_set():
            return
        try:
            message = engine_pb2.FromEngine.FromString(raw)
        except DecodeError:
            self._end("the engine talks nonsense")
            return
        if not self.greeting.done():
            self.greeting.set_result(message.info)
        elif message.HasField("frame"):
            self._on_frame(message.frame, raw)

    def _take_rendered(self, raw: bytes) -> None:
        if self.closed.is_set():
            return
        try:
            batch = engine_pb2.RenderedBatch.FromString(raw)
        except DecodeError:
            self._end("the engine talks nonsense")
            return
        self._on_rendered(batch)


async def _first_to_end(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run all until one ends or fails; then cancel the others and wait for them."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    _LOG.error("engine stream failed", exc_info=result)
