"""Serves the stub over gRPC on a Unix socket.

One event loop. Every Run stream has its own batch and its own stepping task; a step's frame is written
before the next step starts, so a reader that does not read holds its engine up and nothing grows.
"""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from typing_extensions import override

from superinfer_executor.stub.answers import Words
from superinfer_executor.stub.batch import Batch
from superinfer_executor.stub.bodies import BadBodyError, StubBody, read_body
from superinfer_executor.stub.settings import StubSettings
from superinfer_proto.limits import MESSAGE_OPTIONS
from superinfer_proto.v1 import engine_pb2, engine_pb2_grpc, slo_pb2

BLOCK_SIZE = 16


class StubEngine(engine_pb2_grpc.EngineServicer):
    """The Engine service of one stub process."""

    def __init__(self, settings: StubSettings, *, die: Callable[[], None] | None = None) -> None:
        self._settings = settings
        self._words = Words()
        self._die = die or _kill_self
        self._steps = 0
        self._idle: dict[Batch, asyncio.Event] = {}
        self.generation = uuid.uuid4().hex

    @property
    def info(self) -> engine_pb2.EngineInfo:
        """What the engine says about itself."""
        return engine_pb2.EngineInfo(
            type=engine_pb2.ENGINE_TYPE_STUB,
            version="stub",
            model=self._settings.served_model_name,
            max_model_len=self._settings.max_model_len,
            max_num_seqs=self._settings.max_num_seqs,
            max_num_batched_tokens=self._settings.max_num_batched_tokens,
            block_size=BLOCK_SIZE,
            kv_total_tokens=self._settings.kv_total_tokens,
            generation=self.generation,
            scheduler="fcfs",
            dtype="none",
        )

    @override
    async def Run(self, request_iterator: Any, context: Any) -> None:
        """One sidecar's stream: take work, send one frame per step."""
        batch = Batch(self._settings, self._words)
        work = asyncio.Event()
        idle = self._idle[batch] = asyncio.Event()
        idle.set()
        await context.write(engine_pb2.FromEngine(info=self.info))
        stepping = asyncio.create_task(self._step_for_ever(batch, work, context.write))
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                for cancel in message.cancels:
                    batch.cancel(cancel)
                for submit in message.submits:
                    if self._settings.die_on and self._settings.die_on.encode() in submit.body:
                        self._die()
                    batch.submit(submit)
                if batch.busy:
                    idle.clear()
                    work.set()
        finally:
            del self._idle[batch]
            idle.set()
            stepping.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.RpcError, asyncio.InvalidStateError):
                await stepping

    @override
    async def Render(self, request_iterator: Any, context: Any) -> None:
        """Sizes of request bodies."""
        while (batch := await context.read()) is not grpc.aio.EOF:
            if self._settings.render_ms:
                await asyncio.sleep(self._settings.render_ms / 1000)
            answer = engine_pb2.RenderedBatch()
            for request in batch.requests:
                self._render(request, answer.rendered.add(request_id=request.request_id))
            await context.write(answer)

    async def drain(self) -> None:
        """Wait until nothing is running, at most the grace period."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.grace_s):
                for idle in list(self._idle.values()):
                    await idle.wait()

    def _render(self, request: engine_pb2.RenderRequest, rendered: engine_pb2.Rendered) -> None:
        try:
            body: StubBody = read_body(request.path, request.body, max_model_len=self._settings.max_model_len)
        except BadBodyError as bad:
            rendered.error.CopyFrom(slo_pb2.Error(code=bad.code, message=bad.message, param=bad.param))
            return
        rendered.prompt_token_ids.extend(body.prompt_token_ids)
        rendered.total_prompt_tokens = len(body.prompt_token_ids)
        rendered.max_tokens = body.max_tokens
        rendered.choices = body.choices
        rendered.stream = body.stream
        rendered.resumable = True

    async def _step_for_ever(
        self, batch: Batch, work: asyncio.Event, write: Callable[[Any], Awaitable[None]]
    ) -> None:
        clock = asyncio.get_running_loop().time
        due_s = clock()
        while True:
            if not batch.busy:
                work.clear()
                self._idle[batch].set()
                await work.wait()
                due_s = clock()
            self._steps += 1
            if 0 < self._settings.die_after_steps < self._steps:
                self._die()
            if 0 < self._settings.hang_after_steps < self._steps:
                await asyncio.Event().wait()
            started_s = clock()
            frame, duration_ms = batch.step(self._steps)
            if 0 < self._settings.slow_after_steps < self._steps:
                duration_ms *= self._settings.slow_factor
            due_s = max(due_s + duration_ms / 1000, clock())
            if duration_ms:
                await asyncio.sleep(due_s - clock())
            frame.facts.step_ms = max(duration_ms, (clock() - started_s) * 1000)
            await write(engine_pb2.FromEngine(frame=frame))


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def start_server(engine: StubEngine, settings: StubSettings) -> Any:
    """A started gRPC server on the settings' socket; a stale socket file is replaced."""
    settings.socket.unlink(missing_ok=True)
    server = grpc.aio.server(options=MESSAGE_OPTIONS)
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{settings.socket}")
    await server.start()
    return server
