"""The stream to one sidecar: submits and cancels up, decisions, frames and load reports down.

Promises: what is submitted in one turn of the event loop travels in one message; an output finds its request
by one dictionary look-up; when the stream breaks, every request on it hears of it once, and the link tries
again with growing pauses for as long as it is open.
Concurrency: two tasks per link (reader with reconnect, writer), all on the event loop.
"""

import asyncio
import logging
import random
from collections import deque
from time import monotonic
from typing import Final

import grpc
import grpc.aio

from superinfer_core.prediction.step_model import StepModel
from superinfer_ingress.config import ExecutorSettings, TlsSettings
from superinfer_ingress.inflight import InFlight
from superinfer_proto.v1 import engine_pb2, sidecar_pb2, sidecar_pb2_grpc, work_pb2

_log = logging.getLogger("superinfer.ingress.executors")

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_COEFFICIENTS: Final = 5

_CHANNEL_OPTIONS: Final = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class ExecutorLink:
    """One sidecar, its engine, and the requests this ingress has there."""

    def __init__(
        self, settings: ExecutorSettings, *, ingress_id: str, version: str, tls: TlsSettings | None = None
    ) -> None:
        self.settings = settings
        self.connected = False
        self.engine: engine_pb2.EngineInfo | None = None
        self.load: sidecar_pb2.LoadReport | None = None
        self.model: StepModel | None = None
        self.heard_ms = 0.0
        """When the last message came, on the monotonic clock."""
        self.reported_ms = 0.0
        """When the last load report came."""
        self.sent_since_report_ms = 0.0
        """Predicted work submitted since then, which the report cannot know of."""
        self.requests: dict[str, InFlight] = {}
        self.reconnects = 0
        self.reported = asyncio.Event()
        self._hello = sidecar_pb2.Hello(ingress_id=ingress_id, version=version)
        self._submits: deque[work_pb2.Submit] = deque()
        self._cancels: deque[work_pb2.Cancel] = deque()
        self._something_to_send = asyncio.Event()
        self._call: grpc.aio.StreamStreamCall | None = None
        self._tls = tls
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The executor's name, as clients see it."""
        return self.settings.name

    @property
    def serving(self) -> bool:
        """Whether an engine is there and takes new work, as far as the last report says."""
        load = self.load
        return self.connected and load is not None and load.serving and not load.draining

    def start(self) -> None:
        """Begin connecting."""
        self._task = asyncio.create_task(self._run(), name=f"executor {self.name}")

    async def close(self) -> None:
        """End the stream; requests still on it hear that it is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def drop(self) -> None:
        """Give the current stream up: nothing was heard for too long."""
        if self._call is not None:
            self._call.cancel()

    def submit(self, request: InFlight, message: work_pb2.Submit, *, work_ms: float) -> None:
        """Send one submit; its outputs go to `request`."""
        self.requests[request.request_id] = request
        self.sent_since_report_ms += work_ms
        self._submits.append(message)
        self._something_to_send.set()

    def cancel(self, request: InFlight) -> None:
        """Cancel the request's current attempt, and forget it."""
        if self.requests.get(request.request_id) is request:
            del self.requests[request.request_id]
            self._cancels.append(work_pb2.Cancel(request_id=request.request_id, attempt=request.attempt))
            self._something_to_send.set()

    def forget(self, request: InFlight) -> None:
        """The request is over here; nothing more is expected of it."""
        if self.requests.get(request.request_id) is request:
            del self.requests[request.request_id]

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        channel = self._channel()
        try:
            while True:
                heard = self.heard_ms
                try:
                    await self._serve(channel)
                except grpc.aio.AioRpcError as error:
                    _log.debug("executor %s: %s", self.name, error.code().name)
                except asyncio.CancelledError:
                    # Cancelling the call ends the read with CancelledError too; only the task's own counts.
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                finally:
                    self._lost()
                if self.heard_ms > heard:
                    pause_s = _FIRST_PAUSE_S
                await asyncio.sleep(pause_s * (0.5 + random.random()))
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
        finally:
            await channel.close()

    def _channel(self) -> grpc.aio.Channel:
        address = self.settings.address
        if self._tls is None:
            return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(
            root_certificates=self._tls.ca.read_bytes(),
            private_key=self._tls.key.read_bytes(),
            certificate_chain=self._tls.cert.read_bytes(),
        )
        return grpc.aio.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)

    async def _serve(self, channel: grpc.aio.Channel) -> None:
        call = sidecar_pb2_grpc.SidecarStub(channel).Serve()  # type: ignore[no-untyped-call]
        self._call = call
        writer: asyncio.Task[None] | None = None
        try:
            await call.write(sidecar_pb2.ToSidecar(hello=self._hello))
            writer = asyncio.create_task(self._write(call))
            while True:
                message = await call.read()
                if message is grpc.aio.EOF:
                    return
                now_ms = monotonic() * 1000.0
                self.heard_ms = now_ms
                if not self.connected:
                    self.connected = True
                    _log.info("executor %s: connected to %s", self.name, self.settings.address)
                self._dispatch(message, now_ms)
        finally:
            self._call = None
            call.cancel()
            if writer is not None:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, call: grpc.aio.StreamStreamCall) -> None:
        wake = self._something_to_send
        while True:
            await wake.wait()
            wake.clear()
            message = sidecar_pb2.ToSidecar(submits=self._submits, cancels=self._cancels)
            self._submits.clear()
            self._cancels.clear()
            await call.write(message)

    def _dispatch(self, message: sidecar_pb2.FromSidecar, now_ms: float) -> None:
        requests = self.requests
        for decision in message.decisions:
            request = requests.get(decision.request_id)
            if request is not None and request.attempt == decision.attempt:
                request.on_decision(decision)
                if not decision.admitted:
                    requests.pop(decision.request_id, None)
        if message.HasField("frame"):
            for output in message.frame.outputs:
                request = requests.get(output.request_id)
                if request is not None and request.attempt == output.attempt:
                    request.on_output(output, now_ms)
                    if output.final:
                        requests.pop(output.request_id, None)
        if message.HasField("load"):
            self._on_load(message.load, now_ms)
        if message.HasField("info"):
            self.engine = message.info.engine if message.info.HasField("engine") else self.engine

    def _on_load(self, load: sidecar_pb2.LoadReport, now_ms: float) -> None:
        self.load = load
        self.reported_ms = now_ms
        self.sent_since_report_ms = 0.0
        if len(load.step_model) == _COEFFICIENTS:
            self.model = StepModel.from_coefficients(load.step_model)
        self.reported.set()
        self.reported.clear()

    def _lost(self) -> None:
        """The stream is gone, and what ran there with it; nothing queued may reach its successor."""
        if self.connected:
            self.reconnects += 1
            _log.warning("executor %s: stream lost with %d requests", self.name, len(self.requests))
        self.connected = False
        self.load = None
        self._submits.clear()
        self._cancels.clear()
        lost = list(self.requests.values())
        self.requests.clear()
        for request in lost:
            request.on_executor_lost()
