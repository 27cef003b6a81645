"""One bidirectional gRPC call on a connection of its own, spoken by the event loop: what both ends share.

The wire is HTTP/2 (RFC 9113) with gRPC's framing, cut down to one call per connection: one stream, no
compression, no header table, so nothing has to be decoded to know what a peer says. Why
not a library: duplex.py and door.py say what that costs.

Promises: `on_message` is called once per message, in order, straight from the read; `on_closed` once, after
the last of them; `send` never waits; a peer that breaks the protocol, or asks on and on and reads no answer,
ends the call, nothing else.
Concurrency: the event loop.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from typing_extensions import override

from superinfer_proto.limits import MAX_MESSAGE_BYTES

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE = (
    0,
    1,
    3,
    4,
    5,
    6,
    7,
    8,
)
_ACK = END_STREAM = 0x1
END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_SET_TABLE_SIZE, _SET_PUSH, _SET_WINDOW, _SET_FRAME = 1, 2, 4, 5
STREAM: Final = 1
HEADER_BYTES: Final = 9
_DEFAULT_WINDOW: Final = 65_535
_WINDOW: Final = 16 * 1024 * 1024
_FRAME: Final = 1024 * 1024
_LEAST_FRAME, _LARGEST_FRAME = 16_384, 2**24 - 1
"""What a peer may say of the frames it takes, by the RFC."""
_PING_BYTES: Final = 8
_MOST_UNREAD: Final = 2 * _WINDOW
"""Bytes a peer may leave unread and still be answered: more than it may be owed of messages."""
_LARGEST_WINDOW: Final = 2**31 - 1

_header: Final = struct.Struct(">BHBBI")
_setting: Final = struct.Struct(">HI")
_prefix: Final = struct.Struct(">BI")
_word: Final = struct.Struct(">I")


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    size = len(payload)
    return _header.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def literal(text: str) -> bytes:
    """A name or value as HPACK (RFC 7541) writes it without compression."""
    raw = text.encode("ascii")
    assert len(raw) < 127, "no header of ours needs HPACK's longer lengths"
    return bytes((len(raw),)) + raw


SETTINGS: Final = http2_frame(
    _SETTINGS,
    0,
    0,
    b"".join(
        _setting.pack(name, value)
        for name, value in (
            (_SET_TABLE_SIZE, 0),
            (_SET_PUSH, 0),
            (_SET_WINDOW, _WINDOW),
            (_SET_FRAME, _FRAME),
        )
    ),
) + http2_frame(_WINDOW_UPDATE, 0, 0, _word.pack(_WINDOW - _DEFAULT_WINDOW))
"""What either end says first (a client after the preface)."""


class Framing(asyncio.Protocol):
    """One end of one call; `opening` is what it says as soon as it is connected."""

    def __init__(
        self, opening: bytes, on_message: Callable[[bytes], None], on_closed: Callable[[str], None]
    ) -> None:
        self._opening = opening
        self._on_message = on_message
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._message = bytearray()
        self._unsent: deque[memoryview] = deque()
        self._peer_frame = 16_384
        self._peer_initial = _DEFAULT_WINDOW
        self._call_window = _DEFAULT_WINDOW
        self._connection_window = _DEFAULT_WINDOW
        self._consumed = 0
        self._why = "the connection was closed"

    def send(self, message: bytes) -> None:
        """Send one message, as soon as the peer's window allows."""
        self._unsent.append(memoryview(_prefix.pack(0, len(message)) + message))
        self._flush()

    def abort(self) -> None:
        """End the call and its connection now."""
        if self._transport is not None:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        self._transport.write(self._opening)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._unsent.clear()
        self._on_closed(self._why if exc is None else f"{type(exc).__name__}: {exc}")

    @override
    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at, end = 0, len(received)
        while end - at >= HEADER_BYTES:
            high, low, kind, flags, stream = _header.unpack_from(received, at)
            size = high << 16 | low
            if size > _FRAME:
                self._break("a frame is larger than was allowed")
                return
            if end - at - HEADER_BYTES < size:
                break
            at += HEADER_BYTES
            payload = bytes(received[at : at + size])
            at += size
            self._on_frame(kind, flags, stream & 0x7FFFFFFF, payload)
            if self._transport is None or self._transport.is_closing():
                return
        del received[:at]

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _DATA:
            self._on_data(flags, payload)
        elif kind == _SETTINGS:
            if not flags & _ACK:
                self._on_settings(payload)
        elif kind == _PING:
            if len(payload) != _PING_BYTES:
                self._break("a ping is malformed")
            elif not flags & _ACK:
                self._answer(http2_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE:
            self._on_window(stream, payload)
        elif kind == _RST_STREAM:
            self._break("the peer reset the call")
        elif kind == HEADERS and flags & END_STREAM:
            self._break("the peer ended the call")
        elif kind == _PUSH_PROMISE:
            self._break("the peer pushed what was not asked for")
        elif kind == _GOAWAY:
            # A server that stops lets the calls it has go on; one that broke closes the connection itself.
            self._why = "the peer is going away"

    def _on_data(self, flags: int, payload: bytes) -> None:
        self._consume(len(payload))
        if flags & _PADDED:
            payload = payload[1 : len(payload) - payload[0]] if payload else b""
        message = self._message
        message += payload
        at, end = 0, len(message)
        while end - at >= 5:
            compressed, size = _prefix.unpack_from(message, at)
            if compressed or size > MAX_MESSAGE_BYTES:
                self._break("a message is compressed or too long")
                return
            if end - at - 5 < size:
                break
            one = bytes(message[at + 5 : at + 5 + size])
            at += 5 + size
            self._on_message(one)
        del message[:at]
        if flags & END_STREAM:
            self._break("the peer ended the call")

    def _consume(self, size: int) -> None:
        """Give the window back in large pieces: what was received has been handled."""
        self._consumed += size
        if self._consumed > _WINDOW // 4:
            more = _word.pack(self._consumed)
            self._write(
                http2_frame(_WINDOW_UPDATE, 0, 0, more) + http2_frame(_WINDOW_UPDATE, 0, STREAM, more)
            )
            self._consumed = 0

    def _on_settings(self, payload: bytes) -> None:
        for name, value in _setting.iter_unpack(payload[: len(payload) // 6 * 6]):
            if name == _SET_WINDOW:
                self._call_window += value - self._peer_initial
                self._peer_initial = value
            elif name == _SET_FRAME:
                if not _LEAST_FRAME <= value <= _LARGEST_FRAME:
                    self._break("a setting of frame sizes is out of bounds")
                    return
                self._peer_frame = value
        self._answer(http2_frame(_SETTINGS, _ACK, 0, b""))
        self._flush()

    def _on_window(self, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            self._break("a window update is malformed")
            return
        more = _word.unpack(payload)[0] & 0x7FFFFFFF
        if stream == 0:
            self._connection_window = min(_LARGEST_WINDOW, self._connection_window + more)
        elif stream == STREAM:
            self._call_window = min(_LARGEST_WINDOW, self._call_window + more)
        self._flush()

    def _flush(self) -> None:
        if self._transport is None:
            return
        out: list[bytes | memoryview] = []
        while self._unsent:
            piece = self._unsent[0]
            room = min(self._call_window, self._connection_window, self._peer_frame)
            if room <= 0:
                break
            part = piece[:room]
            if len(part) == len(piece):
                self._unsent.popleft()
            else:
                self._unsent[0] = piece[room:]
            self._call_window -= len(part)
            self._connection_window -= len(part)
            out.append(_header.pack(len(part) >> 16, len(part) & 0xFFFF, _DATA, 0, STREAM))
            out.append(part)
        if out:
            self._transport.write(b"".join(out))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _answer(self, data: bytes) -> None:
        """Answer what a peer may ask as often as it likes, as long as it reads the answers."""
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() > _MOST_UNREAD:
            self._break("the peer asks and does not read")
            return
        self._transport.write(data)

    def _break(self, why: str) -> None:
        self._why = why
        self.abort()
