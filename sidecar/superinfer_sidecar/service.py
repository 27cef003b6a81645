"""Puts a sidecar together: engine connection, ingress streams, ticks, health, reflection.

One event loop; everything that decides is the Desk. The gRPC port is up before the engine is: health says
NOT_SERVING until one serves, and again while it is gone or the sidecar drains.
"""

import asyncio
import contextlib
import logging
import time
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from superinfer_proto.door import Door
from superinfer_proto.limits import MESSAGE_OPTIONS
from superinfer_proto.processes import is_ending
from superinfer_proto.served_call import ServedCall
from superinfer_proto.v1 import engine_pb2, sidecar_pb2, work_pb2
from superinfer_sidecar.backpressure import tick_ms
from superinfer_sidecar.book import Book, Bounds
from superinfer_sidecar.checkpoint.metrics import CheckpointCollector
from superinfer_sidecar.checkpoint.unit import Checkpoints
from superinfer_sidecar.desk import Desk
from superinfer_sidecar.engine_link import EngineConnection, EngineLink
from superinfer_sidecar.engine_watch import EngineWatch, end_engine
from superinfer_sidecar.http import Page, start_pages
from superinfer_sidecar.ingress_link import GrpcStream, IngressLink, IngressStream, serve_ingress
from superinfer_sidecar.load import REPORT_EVERY_MS, LoadReporter
from superinfer_sidecar.metrics import CONTENT_TYPE, render_metrics
from superinfer_sidecar.peers import Peers
from superinfer_sidecar.planner import Planner
from superinfer_sidecar.relay import relay
from superinfer_sidecar.settings import SidecarSettings
from superinfer_sidecar.starvation import Starvation

_LOG = logging.getLogger(__name__)
SERVICE: Final = "superinfer.v1.Sidecar"
_SERVE: Final = f"/{SERVICE}/Serve"
ALIVE: Final = "alive"
READY_NAMES: Final = ("", SERVICE, "ready")
_REPORT_S: Final = REPORT_EVERY_MS / 1000
_LOOK_S: Final = 0.01
"""How often the engine's process is looked at."""
_TIMER_SLACK_S: Final = 0.001
_LAST_WORDS_S: Final = 1.0
_FETCHED_WITHIN_S: Final = 1.5
"""How long the blocks of requests that were handed over stay here to be fetched."""
_OPTIONS: Final = (
    *MESSAGE_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.max_ping_strikes", 0),  # peers ping while they have nothing to copy
)


def clock_ms() -> float:
    """The process' one clock."""
    return time.monotonic() * 1000.0


class Sidecar:
    """One running sidecar."""

    def __init__(self, settings: SidecarSettings, planner: Planner) -> None:
        self._settings = settings
        self.peers = Peers(settings)
        book = Book(Bounds(settings.max_queued, settings.max_queued_bytes))
        self.desk = Desk(settings, planner, book, clock_ms)
        self.reporter = LoadReporter(self.desk)
        self.checkpoints: Checkpoints | None = None
        if settings.checkpoint is not None:
            self.checkpoints = Checkpoints(settings.checkpoint, settings.executor_name, self.peers, self.desk)
            self.reporter.checkpoint_peers = self.checkpoints.holders
        self.links: set[IngressLink] = set()
        self.port = 0
        self.metrics_port = 0
        self._health = health.aio.HealthServicer()
        self._server: Any = None
        self._door: Door | None = None
        self._pages: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._watch = EngineWatch(settings.hang, every_ms=REPORT_EVERY_MS, starvation=Starvation)
        self._drained = asyncio.Event()
        self._streams_ended = asyncio.Event()
        self._streams_ended.set()
        self._engine = EngineConnection(
            f"unix:{settings.engine_socket}",
            on_up=self._engine_up,
            on_lost=self._engine_lost,
            on_frame=self._frame,
            on_rendered=self._rendered,
        )

    async def start(self) -> None:
        """Open the port and begin to look for the engine."""
        settings = self._settings
        server = self._server = grpc.aio.server(options=_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Serve": handler}),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self.checkpoints is not None:
            self.checkpoints.add_to(server)
            self.checkpoints.start()
        await self._listen(server)
        if settings.metrics_port >= 0:
            await self._start_pages()
        await self._health.set(ALIVE, health_pb2.HealthCheckResponse.SERVING)
        await self._tell_health()
        self._tasks = [
            asyncio.create_task(self._engine.run_for_ever()),
            asyncio.create_task(self._tick_for_ever()),
            asyncio.create_task(self._look_for_ever()),
        ]

    async def _listen(self, server: grpc.aio.Server) -> None:
        """Open the port: gRPC's, or a door before gRPC where nobody has to show a certificate."""
        names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        listen, certificates = self._settings.listen, self.peers.certificates
        if certificates is not None:
            self.port = server.add_secure_port(listen, certificates.server_credentials())
        elif self.peers.lets_in_anyone(listen):
            door = self._door = Door(_SERVE, self._serve_direct)
            await door.open(listen)
            self.port = door.port
            # Named after the address, which is ours alone; one that a killed sidecar left is replaced.
            path = listen.removeprefix("unix:").removeprefix("//")
            beside = path if listen.startswith("unix:") else f"{self._settings.engine_socket}.{door.port}"
            door.behind = f"{beside}.grpc"
            server.add_insecure_port(f"unix:{door.behind}")
        else:
            self.port = server.add_insecure_port(listen)
        await server.start()

    async def drain(self) -> None:
        """Refuse new work; let ingresses take elsewhere what can go there, finish the rest, then close.

        Ingresses hear of it with the report sent here, and cancel what they have placed elsewhere. Its blocks
        can be fetched for a moment longer.
        """
        cancelled = self.desk.counters.cancelled
        self.desk.draining = True
        await self._tell_health()
        self._report()
        self._check_drained()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained.wait(), self._settings.grace_s)
        handed_over = self.desk.counters.cancelled > cancelled or bool(self.desk.book.by_id)
        self.desk.end_all()
        if self.checkpoints is not None and handed_over:
            await asyncio.sleep(_FETCHED_WITHIN_S)
        await self._end_streams()
        if self.checkpoints is not None:
            await self.checkpoints.close()
        if self._door is not None:
            self._door.close()
        await self._server.stop(grace=0.2)
        if self._pages is not None:
            self._pages.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end_streams(self) -> None:
        """Let every ingress have its last outputs, then end its stream."""
        links = list(self.links)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                for link in links:
                    await link.written.wait()
        for link in links:
            link.ending.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._streams_ended.wait()

    def executor_info(self) -> sidecar_pb2.ExecutorInfo:
        """Who we are and which engine is behind us (none: an empty engine)."""
        info = sidecar_pb2.ExecutorInfo(executor=self._settings.executor_name)
        if self.desk.engine is not None:
            info.engine.CopyFrom(self.desk.engine.info)
        return info

    @property
    def ready(self) -> bool:
        """Whether work is taken."""
        return self.desk.engine is not None and not self.desk.draining

    async def _start_pages(self) -> None:
        plain = "text/plain; charset=utf-8"
        pages: dict[str, Page] = {
            "/metrics": lambda: (200, CONTENT_TYPE, self._metrics()),
            "/livez": lambda: (200, plain, b"alive\n"),
            "/readyz": lambda: (200, plain, b"ready\n") if self.ready else (503, plain, b"not ready\n"),
        }
        self._pages = await start_pages(self._settings.metrics_host, self._settings.metrics_port, pages)
        self.metrics_port = self._pages.sockets[0].getsockname()[1]

    def _metrics(self) -> bytes:
        more = [] if self.checkpoints is None else [CheckpointCollector(self.checkpoints)]
        return render_metrics(self.desk, *more)

    # --- ingresses

    async def _serve(self, _requests: Any, context: Any) -> None:
        why_not = self.peers.why_not_submit(context)
        if why_not is not None:
            _LOG.warning("a peer was turned away: %s", why_not)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why_not)
        await self._serve_stream(GrpcStream(context))

    async def _serve_direct(self, call: ServedCall) -> None:
        await self._serve_stream(call)
        await call.finish(0)

    async def _serve_stream(self, stream: IngressStream) -> None:
        link = IngressLink(self._settings.stream_buffer_bytes)
        self.links.add(link)
        self._streams_ended.clear()
        link.info(self.executor_info())
        link.load(self.reporter.make())
        try:
            await serve_ingress(stream, link, self.desk)
        finally:
            self.links.discard(link)
            if not self.links:
                self._streams_ended.set()
            self._check_drained()

    # --- the engine

    def _engine_up(self, link: EngineLink) -> None:
        self._watch.on_engine(link.pid, clock_ms())
        self.desk.engine_up(link)
        self._tell_ingresses()

    def _engine_lost(self) -> None:
        self.desk.engine_lost()
        self._tell_ingresses()
        self._check_drained()

    def _frame(self, frame: work_pb2.Frame, raw: bytes) -> None:
        relay(frame, raw, self.desk.frame(frame))
        self.reporter.running = frame.facts.running
        self.reporter.kv_usage = frame.facts.kv_usage
        self.desk.dispatch()
        self._check_drained()

    def _rendered(self, batch: engine_pb2.RenderedBatch) -> None:
        self.desk.rendered(batch.rendered)

    # --- time

    async def _tick_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        last_s = report_s = loop.time()
        while True:
            due_s = min(
                report_s + _REPORT_S, last_s + tick_ms(self.desk.pressure.value, REPORT_EVERY_MS) / 1000
            )
            await asyncio.sleep(due_s - loop.time())
            elapsed_s, last_s = loop.time() - last_s, loop.time()
            self.desk.tick(elapsed_s * 1000)
            if last_s - report_s >= _REPORT_S - _TIMER_SLACK_S:
                # From the last due time, not from now, so that late timers do not make reports rarer.
                report_s = max(report_s + _REPORT_S, last_s - _REPORT_S)
                self._report()
                self._watch_engine()

    async def _look_for_ever(self) -> None:
        """Its socket closes only when its memory is freed; that its process ends is to be seen before."""
        while True:
            await asyncio.sleep(_LOOK_S)
            engine = self.desk.engine
            if engine is not None and engine.pid is not None and is_ending(engine.pid):
                self._engine.drop()

    def _report(self) -> None:
        if self.links:
            report = self.reporter.make()
            for link in self.links:
                link.load(report)

    def _watch_engine(self) -> None:
        desk, engine = self.desk, self.desk.engine
        if engine is None:
            return
        if self._watch.hangs(
            clock_ms(),
            last_frame_ms=desk.last_frame_ms,
            work=desk.book.engine_work(),
            longest_step_ms=desk.planner.longest_step_ms(engine.info.max_model_len),
            trusted=desk.planner.profiled,
        ):
            desk.counters.engine_hangs += 1
            _LOG.error("the engine hangs", extra={"generation": engine.info.generation})
            if self._settings.end_hung_engine:
                end_engine(engine.pid)
            self._engine.give_up(engine.info.generation)

    def _tell_ingresses(self) -> None:
        info = self.executor_info()
        report = self.reporter.make()
        for link in self.links:
            link.info(info)
            link.load(report)
        self._tasks.append(asyncio.create_task(self._tell_health()))
        self._tasks = [task for task in self._tasks if not task.done()]

    async def _tell_health(self) -> None:
        state = health_pb2.HealthCheckResponse
        for name in READY_NAMES:
            await self._health.set(name, state.SERVING if self.ready else state.NOT_SERVING)

    def _check_drained(self) -> None:
        if self.desk.draining and not self.desk.book.by_id:
            self._drained.set()
