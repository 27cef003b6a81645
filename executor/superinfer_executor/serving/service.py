"""The Engine service: Run streams of sidecars, Render, and what ties them to one engine.

Event loop only. A Run stream that breaks takes its requests with it after a moment's grace; one whose
reader does not keep up is ended rather than buffered without end.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from typing_extensions import override

from superinfer_core.refusal import RefusalCode
from superinfer_executor.engine.bodies import body_limit_bytes
from superinfer_executor.engine.start import Engine
from superinfer_executor.serving.facts import FactsSocket
from superinfer_executor.serving.frames import FrameAssembler, FrameSink
from superinfer_executor.serving.registry import StreamRegistry
from superinfer_executor.serving.render import Renderer
from superinfer_executor.serving.run_stream import RunStream
from superinfer_executor.serving.stream import Stream, StreamHooks
from superinfer_proto.v1 import engine_pb2, engine_pb2_grpc, slo_pb2, work_pb2

log = logging.getLogger(__name__)

BROKEN_STREAM_GRACE_S: Final = 1.0


class EngineService(engine_pb2_grpc.EngineServicer):
    """See the module. `start` before serving."""

    def __init__(self, engine: Engine, facts_path: Path | None = None) -> None:
        self._engine = engine
        self.registry = StreamRegistry()
        self._facts: FactsSocket | None = None
        self._limit_bytes = body_limit_bytes(engine.info.max_model_len, engine.max_chars_per_token)
        self._renderer = Renderer(
            engine.surface, engine.llm, limit_bytes=self._limit_bytes, scheduler=engine.info.scheduler
        )
        self._draining = False
        self._breaking: set[asyncio.Task[None]] = set()
        self.dead = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._frames = FrameAssembler(loop, is_running=self.registry.is_running, take_facts=self._take_facts)
        self._hooks = StreamHooks(
            emit=lambda stream, output: self._frames.add(stream.owner, output),
            settle=self._frames.settle,
            claim=self.registry.claim,
            now_ms=lambda: time.monotonic() * 1000,
        )
        if facts_path is not None:
            self._facts = FactsSocket(
                facts_path, preempted=self._count_preemption, flush=self._frames.flush_soon
            )
            self._facts.listen(loop)
        engine.llm.listen(self)

    # -- rpc --

    @override
    async def Run(self, request_iterator: Any, context: Any) -> None:
        """One sidecar's stream: take work, send one frame per engine step."""
        await context.write(engine_pb2.FromEngine(info=self._engine.info))
        sink = RunStream()
        self._frames.add_sink(sink)
        reading = asyncio.create_task(self._read(context, sink))
        writing = asyncio.create_task(sink.write_to(context))
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done() and not writing.cancelled():
                log.warning("a Run stream has ended: %s", writing.exception())
        finally:
            self._frames.remove_sink(sink)
            reading.cancel()
            writing.cancel()
            task = asyncio.create_task(self._abort_later(sink))
            self._breaking.add(task)
            task.add_done_callback(self._breaking.discard)

    @override
    async def Render(self, request_iterator: Any, context: Any) -> None:
        """Prompt ids and sizes of bodies; nothing is generated."""
        lock = asyncio.Lock()

        async def answer(request: engine_pb2.RenderRequest) -> None:
            rendered = await self._renderer.render(request)
            async with lock:
                await context.write(engine_pb2.RenderedBatch(rendered=[rendered]))

        async with asyncio.TaskGroup() as group:
            while (batch := await context.read()) is not grpc.aio.EOF:
                for request in batch.requests:
                    group.create_task(answer(request))

    # -- what the engine tells (engine/llm.StepListener) --

    async def ready(self) -> None:
        """The next step may come."""
        await self._frames.ready()

    def on_step(self, engine_ids: list[str]) -> None:
        """A step has come."""
        self._frames.begin_step(engine_ids)

    def on_dead(self, error: BaseException) -> None:
        """The engine has ended; the command ends the process."""
        log.error("the engine is dead: %s", error)
        self.dead.set()

    # -- life --

    async def drain(self, grace_s: float) -> bool:
        """Take nothing new; True when everything that ran has finished within the grace."""
        self._draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self.registry.wait_until_idle()
        except TimeoutError:
            return False
        self._frames.flush_now()
        # Frames that are queued still have to be written.
        await asyncio.sleep(0.05)
        return True

    def close(self) -> None:
        """Let go of the facts socket."""
        if self._facts is not None:
            self._facts.close()

    @contextlib.contextmanager
    def internal_sink(self, sink: FrameSink) -> Iterator[Callable[[work_pb2.Submit], None]]:
        """A Run stream without a wire: how the warm-up and tests get a request through everything."""
        self._frames.add_sink(sink)
        try:
            yield lambda submit: self._submit(submit, sink)
        finally:
            self._frames.remove_sink(sink)
            self.registry.cancel_all_of(sink)

    # -- inside --

    async def _read(self, context: Any, sink: RunStream) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            for cancel in message.cancels:
                self.registry.cancel(cancel.request_id, cancel.attempt)
            for submit in message.submits:
                self._submit(submit, sink)

    def _submit(self, submit: work_pb2.Submit, sink: FrameSink) -> None:
        if not self.registry.admit(submit.request_id, submit.attempt):
            return
        if self._draining or self.dead.is_set():
            error = slo_pb2.Error(code=RefusalCode.SHUTTING_DOWN.value, message="the engine is shutting down")
            output = work_pb2.Output(
                request_id=submit.request_id, attempt=submit.attempt, final=True, error=error
            )
            self._frames.add(sink, output)
            return
        self.registry.start(
            Stream(
                submit,
                self._engine.surface,
                self._hooks,
                owner=sink,
                limit_bytes=self._limit_bytes,
                scheduler=self._engine.info.scheduler,
            )
        )

    async def _abort_later(self, sink: RunStream) -> None:
        await asyncio.sleep(BROKEN_STREAM_GRACE_S)
        self.registry.cancel_all_of(sink)

    def _take_facts(self) -> list[work_pb2.StepFacts]:
        return self._facts.take() if self._facts is not None else []

    def _count_preemption(self, engine_id: str) -> None:
        stream = self.registry.find(engine_id)
        if stream is not None:
            stream.preemptions += 1
