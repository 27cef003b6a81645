"""One ingress' stream: what it is owed, bounded, and the reading of what it sends.

An ingress that leaves more unread than the bound is cut off: its requests are cancelled, its stream ended.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from typing_extensions import override

from superinfer_proto.v1 import sidecar_pb2, work_pb2
from superinfer_sidecar.desk import Desk
from superinfer_sidecar.outbox import Outbox

_LOG = logging.getLogger(__name__)
_FRAME_TAG: Final = b"\x1a"
"""Key of FromSidecar.frame on the wire (field 3, length-delimited)."""
_CALM_PER_S: Final = 1600.0
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _INTERNAL = (
    int(code.value[0])
    for code in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
    )
)
_PATIENCE_S: Final = 1.0
"""How long the end of a stream nobody reads may take to be written."""


class IngressLink(Outbox):
    """Implements IngressPort for one stream."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(_CALM_PER_S)
        self._limit_bytes = limit_bytes
        self._decisions: list[sidecar_pb2.Decision] = []
        self._begun: list[sidecar_pb2.Begun] = []
        self._pieces: list[bytes] = []
        self._pending_bytes = 0
        self._load = b""
        self._info: sidecar_pb2.ExecutorInfo | None = None
        self.too_slow = False
        self.ending = asyncio.Event()
        """Set when the stream is to be ended from this side."""

    def decide(self, decision: sidecar_pb2.Decision) -> None:
        """Answer a submit."""
        self._decisions.append(decision)
        self._grow(64)

    def begun(self, request_id: str, attempt: int) -> None:
        """Tell that the engine has been given this attempt."""
        self._begun.append(sidecar_pb2.Begun(request_id=request_id, attempt=attempt))
        self._grow(64)

    def frame(self, frame: work_pb2.Frame) -> None:
        """Send output made or picked out here."""
        encoded = sidecar_pb2.FromSidecar(frame=frame).SerializeToString()
        self._pieces.append(encoded)
        self._grow(len(encoded))

    def engine_frame(self, encoded: bytes) -> None:
        """Pass on an engine's frame: length and body as the engine wrote them, under our own key."""
        self._pieces.append(_FRAME_TAG)
        self._pieces.append(encoded)
        self._grow(len(encoded))

    def load(self, encoded: bytes) -> None:
        """The newest load report replaces one that was not written yet."""
        self._load = encoded
        self.poke()

    def info(self, info: sidecar_pb2.ExecutorInfo) -> None:
        """Tell about the engine."""
        self._info = info
        self.poke()

    @override
    def take(self) -> bytes:
        """All of it in one message. Frames follow each other: merging them appends their outputs."""
        pieces, self._pieces = self._pieces, []
        head = b""
        if self._decisions or self._begun or self._info is not None:
            message = sidecar_pb2.FromSidecar(decisions=self._decisions, begun=self._begun)
            if self._info is not None:
                message.info.CopyFrom(self._info)
            head = message.SerializeToString()
            self._decisions.clear()
            self._begun.clear()
            self._info = None
        self._pending_bytes = 0
        load, self._load = self._load, b""
        return head + b"".join(pieces) + load

    def _grow(self, size: int) -> None:
        self._pending_bytes += size
        if self._pending_bytes > self._limit_bytes:
            self.too_slow = True
            self.ending.set()
        self.poke()


class IngressStream(Protocol):
    """One call of Sidecar/Serve, whoever speaks its wire."""

    async def read_for_ever(self, take: Callable[[bytes], None]) -> None:
        """Call `take` with every message until the peer ends the call; raises what `take` raised."""

    async def write(self, message: bytes) -> None:
        """Send one message; returns once there is room for the next."""

    async def finish(self, status: int, message: str) -> None:
        """End the call with a status that is not OK; where nobody reads it, when its connection ends."""


class GrpcStream:
    """A call that came through grpc.aio."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.write = context.write

    async def read_for_ever(self, take: Callable[[bytes], None]) -> None:
        """See IngressStream."""
        while (raw := await self._context.read()) is not grpc.aio.EOF:
            take(raw)

    async def finish(self, status: int, message: str) -> None:
        """See IngressStream."""
        code = next(code for code in grpc.StatusCode if code.value[0] == status)
        with contextlib.suppress(TimeoutError, grpc.aio.InternalError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._context.abort(code, message)


async def serve_ingress(stream: IngressStream, link: IngressLink, desk: Desk) -> None:
    """Run one stream until either side ends it, or the ingress is too slow or talks nonsense."""
    reading = asyncio.create_task(stream.read_for_ever(partial(_take, link, desk)))
    writing = asyncio.create_task(link.write_for_ever(stream.write))
    ending = asyncio.create_task(link.ending.wait())
    tasks: tuple[asyncio.Task[Any], ...] = (reading, writing, ending)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        desk.ingress_lost(link)
        # A status can only follow a write that is done.
        link.close()
        await asyncio.wait([writing], timeout=_PATIENCE_S)
    finally:
        desk.ingress_lost(link)
        link.written.set()  # nothing more will be: nobody waits for it
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
    if link.too_slow:
        desk.counters.slow_ingresses += 1
        await stream.finish(_RESOURCE_EXHAUSTED, "this ingress does not read its output")
    problem = None if reading.cancelled() else reading.exception()
    if isinstance(problem, DecodeError):
        await stream.finish(_INVALID_ARGUMENT, "not a superinfer.v1.ToSidecar")
    elif problem is not None and not isinstance(problem, grpc.RpcError):
        _LOG.error("an ingress stream failed", exc_info=problem)
        await stream.finish(_INTERNAL, "the sidecar failed; its log says why")


def _take(link: IngressLink, desk: Desk, raw: bytes) -> None:
    message = sidecar_pb2.ToSidecar.FromString(raw)
    if message.HasField("hello"):
        _LOG.info("ingress connected", extra={"ingress": message.hello.ingress_id})
    if message.HasField("peers"):
        desk.listener.peers(message.peers)
    if message.cancels:
        desk.cancel(message.cancels, link)
    if message.submits:
        desk.submit(message.submits, link)
