"""The stream to one sidecar: submits and cancels up, decisions, frames and load reports down.

Promises: what is submitted in one turn of the event loop travels in one message, or in as few as its bodies
need; an output finds its request by one dictionary look-up; when the stream breaks, every request on it hears
of it once, and the link tries again with growing pauses for as long as it is open.
Concurrency: one task per link, which connects; messages are handled straight from the read.
"""

import asyncio
import logging
import random
import ssl
from collections import deque
from time import monotonic
from typing import Final

from google.protobuf.message import DecodeError

from superinfer_core.prediction.step_model import StepModel
from superinfer_ingress.config import ExecutorSettings
from superinfer_ingress.executors.identity import Identity
from superinfer_ingress.executors.outages import EngineEnds, Outages
from superinfer_ingress.inflight import InFlight
from superinfer_proto.duplex import DuplexCall, open_call
from superinfer_proto.processes import is_ending
from superinfer_proto.v1 import engine_pb2, sidecar_pb2, work_pb2

_log = logging.getLogger("superinfer.ingress.executors")

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_CONNECT_S: Final = 5.0
_COEFFICIENTS: Final = 5
_METHOD: Final = "/superinfer.v1.Sidecar/Serve"
_BODIES_BYTES: Final = 8 * 1024 * 1024
"""Bodies in one message, beyond the first: sidecars take no message of more than 64 MiB."""


class ExecutorLink:
    """One sidecar, its engine, and the requests this ingress has there."""

    def __init__(
        self, settings: ExecutorSettings, *, ingress_id: str, version: str, identity: Identity | None = None
    ) -> None:
        self.settings = settings
        self.connected = False
        self.leaving = False
        """It is going away: what runs there may go on, nothing new is sent."""
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
        self.outages = Outages()
        self.ends = EngineEnds()
        self.checkpoint_peers: tuple[str, ...] = ()
        """Executors that hold copies of this one's checkpoints, as it said last; kept when it is gone."""
        self._peers: sidecar_pb2.PeerList | None = None
        self.reported = asyncio.Event()
        self._hello = sidecar_pb2.Hello(ingress_id=ingress_id, version=version)
        self._submits: deque[work_pb2.Submit] = deque()
        self._cancels: deque[work_pb2.Cancel] = deque()
        self._flushing = False
        self._call: DuplexCall | None = None
        self._pid: int | None = None
        self._identity = identity
        self._said = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The executor's name, as clients see it."""
        return self.settings.name

    @property
    def serving(self) -> bool:
        """Whether an engine is there and takes new work, as far as the last report says."""
        load = self.load
        here = self.connected and not self.leaving
        return here and load is not None and load.serving and not load.draining

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
            self._call.abort()

    def drop_if_ending(self) -> None:
        """Give it up where its process is seen to end: its socket closes only when its memory is freed."""
        if self._pid is not None and is_ending(self._pid):
            self.drop()

    def tell_peers(self, peers: sidecar_pb2.PeerList) -> None:
        """Let the sidecar know its peers: now if it is there, and whenever it connects."""
        if peers != self._peers:
            self._peers = peers
            if self._call is not None:
                self._call.send(sidecar_pb2.ToSidecar(peers=peers).SerializeToString())

    def submit(self, request: InFlight, message: work_pb2.Submit, *, work_ms: float) -> None:
        """Send one submit; its outputs go to `request`."""
        self.requests[request.request_id] = request
        self.sent_since_report_ms += work_ms
        self._submits.append(message)
        self._send_soon()

    def cancel(self, request: InFlight) -> None:
        """Cancel the request's current attempt, and forget it."""
        if self.requests.get(request.request_id) is request:
            del self.requests[request.request_id]
            self._cancels.append(work_pb2.Cancel(request_id=request.request_id, attempt=request.attempt))
            self._send_soon()

    def forget(self, request: InFlight) -> None:
        """The request is over here; nothing more is expected of it."""
        if self.requests.get(request.request_id) is request:
            del self.requests[request.request_id]

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            heard = self.heard_ms
            try:
                why = await self._serve()
            except (OSError, ValueError) as error:
                why = f"{type(error).__name__}: {error}"
                self._tell_of_tls(error, why)
            finally:
                self._lost()
            _log.debug("executor %s: %s", self.name, why)
            if self.heard_ms > heard:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def _tell_of_tls(self, error: Exception, why: str) -> None:
        """A peer that is not there comes back by itself; one with the wrong certificate does not."""
        if isinstance(error, ssl.SSLError) and why != self._said:
            self._said = why
            name = self.settings.tls_name or "its address"
            _log.warning("executor %s: no certificate for %s: %s", self.name, name, why)

    async def _serve(self) -> str:
        """One call from its beginning to its end; returns why it ended."""
        closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_closed(why: str) -> None:
            if not closed.done():
                closed.set_result(why)

        async with asyncio.timeout(_CONNECT_S):
            call = await open_call(
                self.settings.address,
                _METHOD,
                tls=None if self._identity is None else self._identity.context(),
                tls_name=self.settings.tls_name,
                on_message=self._on_message,
                on_closed=on_closed,
            )
        self._call = call
        self._pid = call.peer_pid()
        try:
            hello = sidecar_pb2.ToSidecar(hello=self._hello, peers=self._peers)
            call.send(hello.SerializeToString())
            return await closed
        finally:
            self._call = None
            self._pid = None
            call.abort()

    def _on_message(self, raw: bytes) -> None:
        now_ms = monotonic() * 1000.0
        self.heard_ms = now_ms
        try:
            message = sidecar_pb2.FromSidecar.FromString(raw)
        except DecodeError:
            _log.warning("executor %s: not a superinfer.v1.FromSidecar; the stream is given up", self.name)
            self.drop()
            return
        if not self.connected:
            self.connected = True
            _log.info("executor %s: connected to %s", self.name, self.settings.address)
        self._dispatch(message, now_ms)

    def _send_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Everything submitted and cancelled in this turn of the loop.

        After a loss that is every request of an executor at once: more than a sidecar takes in one message.
        """
        self._flushing = False
        while self._call is not None and (self._submits or self._cancels):
            submits = _as_many_as_fit(self._submits)
            message = sidecar_pb2.ToSidecar(submits=submits, cancels=self._cancels)
            self._cancels.clear()
            self._call.send(message.SerializeToString())

    def _dispatch(self, message: sidecar_pb2.FromSidecar, now_ms: float) -> None:
        requests = self.requests
        for decision in message.decisions:
            request = requests.get(decision.request_id)
            if request is not None and request.attempt == decision.attempt:
                request.on_decision(decision)
                if not decision.admitted:
                    requests.pop(decision.request_id, None)
        for begun in message.begun:
            request = requests.get(begun.request_id)
            if request is not None and request.attempt == begun.attempt:
                request.begun = True
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
        drains = load.draining and (self.load is None or not self.load.draining)
        self.load = load
        self.checkpoint_peers = tuple(load.checkpoint_peers) or self.checkpoint_peers
        self.outages.note(now_ms, serving=self.serving)
        self.ends.note(now_ms, load.generation, asked_to=load.draining or self.leaving)
        self.reported_ms = now_ms
        self.sent_since_report_ms = 0.0
        if len(load.step_model) == _COEFFICIENTS:
            self.model = StepModel.from_coefficients(load.step_model)
        self.reported.set()
        self.reported.clear()
        if drains:
            for request in list(self.requests.values()):
                request.on_draining()

    def _lost(self) -> None:
        """The stream is gone, and what ran there with it; nothing queued may reach its successor."""
        if self.connected:
            self.reconnects += 1
            _log.warning("executor %s: stream lost with %d requests", self.name, len(self.requests))
        self.connected = False
        self.load = None
        now_ms = monotonic() * 1000.0
        self.outages.note(now_ms, serving=False)
        self.ends.stream_broke()
        self._submits.clear()
        self._cancels.clear()
        lost = list(self.requests.values())
        self.requests.clear()
        for request in lost:
            request.on_executor_lost(now_ms)


def _as_many_as_fit(submits: deque[work_pb2.Submit]) -> list[work_pb2.Submit]:
    """Take the first of `submits` out, and what else goes into the same message."""
    taken: list[work_pb2.Submit] = []
    room = _BODIES_BYTES
    while submits and (not taken or len(submits[0].body) <= room):
        taken.append(submits.popleft())
        room -= len(taken[-1].body)
    return taken
