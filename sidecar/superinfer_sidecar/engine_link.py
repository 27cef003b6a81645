"""The connection to the engine: found again for ever, one port per generation.

A broken stream, a stall or an engine that restarts ends the port; the desk is told once and a new one follows
when an engine answers again.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc
import grpc.aio
from typing_extensions import override

from superinfer_proto.v1 import engine_pb2, work_pb2
from superinfer_sidecar.outbox import Outbox

_LOG = logging.getLogger(__name__)
_RUN: Final = "/superinfer.v1.Engine/Run"
_RENDER: Final = "/superinfer.v1.Engine/Render"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_MESSAGE_BYTES: Final = 8 << 20
"""A message is closed once it is so large: far below what gRPC takes, also with one large body more."""
_TOKEN_ID_BYTES: Final = 5
_CALM_PER_S: Final = 800.0
_FIRST_RETRY_S: Final = 0.05
_LAST_RETRY_S: Final = 1.0
_GREETING_S: Final = 30.0


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

    def __init__(self, info: engine_pb2.EngineInfo) -> None:
        super().__init__(_CALM_PER_S)
        self._info = info
        self._submits: dict[str, work_pb2.Submit] = {}
        self._cancels: list[work_pb2.Cancel] = []
        self.renders = _RenderOutbox()

    @property
    def info(self) -> engine_pb2.EngineInfo:
        """What the engine said about itself."""
        return self._info

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

    def give_up(self) -> None:
        """Drop the engine that is connected (it stalls); a new connection is tried at once."""
        self._give_up.set()

    async def run_for_ever(self) -> None:
        """Connect, serve, and start over, until cancelled."""
        retry_s = _FIRST_RETRY_S
        while True:
            self._give_up.clear()
            async with grpc.aio.insecure_channel(self._target, options=_OPTIONS) as channel:
                served = await self._serve(channel)
            retry_s = _FIRST_RETRY_S if served else min(_LAST_RETRY_S, retry_s * 2)
            await asyncio.sleep(retry_s)

    async def _serve(self, channel: Any) -> bool:
        """Serve one connection to its end; answers whether an engine was there."""
        run = channel.stream_stream(_RUN)(wait_for_ready=False)
        try:
            async with asyncio.timeout(_GREETING_S):
                first = await run.read()
            if first is grpc.aio.EOF:
                return False
            info = engine_pb2.FromEngine.FromString(first).info
        except (grpc.RpcError, TimeoutError):
            return False
        link = EngineLink(info)
        render = channel.stream_stream(_RENDER)()
        self._on_up(link)
        _LOG.info("engine serves", extra={"generation": info.generation, "model": info.model})
        try:
            await _first_to_end(
                self._read_frames(run),
                self._read_rendered(render),
                link.write_for_ever(run.write),
                link.renders.write_for_ever(render.write),
                self._give_up.wait(),
            )
        finally:
            self._on_lost()
            _LOG.warning("engine lost", extra={"generation": info.generation})
            run.cancel()
            render.cancel()
        return True

    async def _read_frames(self, run: Any) -> None:
        parse = engine_pb2.FromEngine.FromString
        while (raw := await run.read()) is not grpc.aio.EOF:
            message = parse(raw)
            if message.HasField("frame"):
                self._on_frame(message.frame, raw)

    async def _read_rendered(self, render: Any) -> None:
        while (raw := await render.read()) is not grpc.aio.EOF:
            self._on_rendered(engine_pb2.RenderedBatch.FromString(raw))


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
                if isinstance(result, Exception) and not isinstance(result, grpc.RpcError):
                    _LOG.error("engine stream failed", exc_info=result)
