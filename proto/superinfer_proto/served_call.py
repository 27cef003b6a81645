"""The server's end of a call that a DuplexCall opened.

Promises: what the peer sends is handled straight from the read; `write` returns once the message is on its
way, so whoever writes more than is read is held up; `finish` gives the call a status and closes.
Concurrency: the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from superinfer_proto.duplex import call_begins
from superinfer_proto.framing import (
    END_HEADERS,
    END_STREAM,
    HEADER_BYTES,
    HEADERS,
    PREFACE,
    SETTINGS,
    STREAM,
    Framing,
    http2_frame,
    literal,
)

_OPENING: Final = SETTINGS + http2_frame(
    HEADERS,
    END_HEADERS,
    STREAM,
    b"\x88\x0f\x10" + literal("application/grpc"),  # :status 200, content-type
)
_LONGEST_MESSAGE: Final = 100
_LAST_WORDS_S: Final = 1.0
"""How long the end of a call nobody reads may take to be written."""


def opens_call(data: bytes, method: str) -> bool:
    """Whether `data` is how a DuplexCall without TLS begins a call to `method`.

    Its first bytes are always the same, so they are compared, not understood: no header of a stranger is
    ever decoded here. Whatever else arrives is no DuplexCall and stays gRPC's.
    """
    begins = PREFACE + SETTINGS
    return data.startswith(begins) and data.startswith(
        call_begins(method, secure=False), len(begins) + HEADER_BYTES
    )


class ServedCall(Framing):
    """The server's end."""

    def __init__(self) -> None:
        super().__init__(_OPENING, self._take, self._closed)
        self._early: list[bytes] | None = []
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room = asyncio.Event()
        self._room.set()
        self._paused = False

    def begin(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection whose first `data` opened the call (see opens_call)."""
        transport.set_protocol(self)
        self.connection_made(transport)
        self.data_received(data[len(PREFACE) :])

    async def read_for_ever(self, take: Callable[[bytes], None]) -> None:
        """Call `take` with every message until the peer ends the call; raises what `take` raised."""
        early, self._early = self._early or [], None
        self._on_message = self._guarded(take)
        for message in early:
            self._on_message(message)
        await self._over

    async def write(self, message: bytes) -> None:
        """Send one message; returns once nothing of it waits for the peer any more."""
        self.send(message)
        while self._transport is not None and (self._unsent or self._paused):
            self._room.clear()
            await self._room.wait()

    async def finish(self, status: int, message: str = "") -> None:
        """End the call with a gRPC status, and its connection; a peer that does not read never hears it."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._unsent:  # half a message is on its way: nothing can follow it
            self.abort()
            return
        # Percent-encoding is for what is not printable ASCII; our messages are short sentences.
        said = message.encode("ascii", "replace").decode()[:_LONGEST_MESSAGE].replace("%", "%25")
        trailers = b"\x00" + literal("grpc-status") + literal(str(status))
        trailers += b"\x00" + literal("grpc-message") + literal(said)
        self._write(http2_frame(HEADERS, END_HEADERS | END_STREAM, STREAM, trailers))
        self._transport.close()
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self.abort)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._room.set()

    @override
    def pause_writing(self) -> None:
        self._paused = True

    @override
    def resume_writing(self) -> None:
        self._paused = False
        self._room.set()

    @override
    def _flush(self) -> None:
        super()._flush()
        if not self._unsent:
            self._room.set()

    def _take(self, message: bytes) -> None:
        assert self._early is not None, "read_for_ever has put its own in this one's place"
        self._early.append(message)

    def _guarded(self, take: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """A message that cannot be taken ends the reading, and nobody else's."""

        def guarded(message: bytes) -> None:
            if self._over.done():
                return
            try:
                take(message)
            except Exception as error:  # noqa: BLE001 - whoever reads for ever gets it
                self._over.set_exception(error)

        return guarded

    def _closed(self, _why: str) -> None:
        if not self._over.done():
            self._over.set_result(None)
