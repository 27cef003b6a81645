"""A listener that serves one method itself and leaves everything else to gRPC.

grpc.aio's server carries every message over a completion queue, a thread of its own and several system
calls: at the rate of engine steps that was over a third of what a sidecar spent. A connection whose first
bytes are those of our own client calling the method (`served_call.opens_call`) is served by the event loop
itself; of any other (health checks, reflection, other clients of the same method) the bytes are passed on to
the gRPC server behind the door, which has every method, this one too: it is the same wire.

Promises: what is not recognised is never half understood; bytes are passed on in order, and no faster than
the slower side reads; where one side ends, the other is ended; nobody stays who says nothing.
Concurrency: the event loop.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from typing_extensions import override

from superinfer_proto.served_call import ServedCall, opens_call

_SILENT_S: Final = 20.0
"""How long a visitor may say nothing at all: a client's first bytes come with its connection."""
_GONE_MS: Final = 20_000
"""How long a visitor's machine may leave what it is sent unanswered, as with gRPC (the kernel: 900 s)."""
_LAST_WORDS_S: Final = 5.0
"""How long what one side said last may take to reach the other."""


class Door:
    """One listener.

    Args:
        method: the method that is served here.
        serve: serves one call of it to its end.
    """

    def __init__(self, method: str, serve: Callable[[ServedCall], Coroutine[Any, Any, None]]) -> None:
        self.method = method
        self.serve = serve
        self.behind = ""
        """Path of the Unix socket gRPC listens on; until it is set, nobody else is let in."""
        self.port = 0
        self.silent_s = _SILENT_S
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, listen: str) -> None:
        """Listen on "host:port" or "unix:/path".

        Raises:
            OSError: that is not possible.
        """
        loop = asyncio.get_running_loop()
        if listen.startswith("unix:"):
            path = listen.removeprefix("unix:").removeprefix("//")
            self._server = await loop.create_unix_server(lambda: _Visitor(self), path)
            return
        host, _, port = listen.rpartition(":")
        self._server = await loop.create_server(lambda: _Visitor(self), host.strip("[]"), int(port))
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Let nobody in any more; who is in stays."""
        if self._server is not None:
            self._server.close()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something for one visitor on a task of its own."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Visitor(asyncio.Protocol):
    """A connection that has not said yet what it wants."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._patience: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        visitor = transport.get_extra_info("socket")
        if visitor.family in (socket.AF_INET, socket.AF_INET6):
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MS)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(self._door.silent_s, self._transport.abort)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._heard()

    def _heard(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    @override
    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._heard()
        # A DuplexCall writes its opening at once, so it arrives at once. Where it does not, gRPC serves it:
        # slower, and as well.
        if opens_call(data, self._door.method):
            call = ServedCall()
            call.begin(self._transport, data)
            self._door.run(self._door.serve(call))
            return
        self._transport.pause_reading()
        self._door.run(_pass_on(self._transport, data, self._door.behind))


async def _pass_on(visitor: asyncio.Transport, first: bytes, behind: str) -> None:
    """Connect a visitor with the gRPC server and let them talk."""
    to_visitor = _Pipe(visitor)
    try:
        inner, _ = await asyncio.get_running_loop().create_unix_connection(lambda: to_visitor, behind)
    except OSError:  # gRPC is gone already: so are we, in a moment
        visitor.abort()
        return
    inner.write(first)
    if visitor.is_closing():
        inner.close()
        return
    visitor.set_protocol(_Pipe(inner))
    visitor.resume_reading()


class _Pipe(asyncio.Protocol):
    """Passes on what one side says to `other`, the other side's transport.

    A side that says no more is closed with the other: gRPC never goes on half closed, and two half-closed
    connections would wait for each other for ever.
    """

    def __init__(self, other: asyncio.Transport) -> None:
        self._other = other

    @override
    def data_received(self, data: bytes) -> None:
        self._other.write(data)

    @override
    def pause_writing(self) -> None:
        # Our own side does not read: the other one has nowhere to go with what it says.
        if not self._other.is_closing():
            self._other.pause_reading()

    @override
    def resume_writing(self) -> None:
        if not self._other.is_closing():
            self._other.resume_reading()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self._other.is_closing():
            self._other.close()
            asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._other.abort)
