"""One bidirectional gRPC call on a connection of its own, spoken by the event loop itself.

grpc.aio carries every message over two more threads and a dozen system calls; at the rate of engine steps
that is most of what a proxy spends. This is the same wire (HTTP/2, RFC 9113; gRPC over HTTP/2) for the one
call a link makes: one stream per connection, no compression, no header table, so nothing has to be
decoded to know what a peer says.

Promises: `on_message` is called once per message, in order, straight from the read; `on_closed` once, after
the last of them; `send` never waits; a peer that breaks the protocol ends the call, nothing else.
Concurrency: the event loop.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from typing_extensions import override

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE = (
    0,
    1,
    3,
    4,
    5,
    6,
    7,
    8,
)
_ACK = _END_STREAM = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_SET_TABLE_SIZE, _SET_PUSH, _SET_WINDOW, _SET_FRAME = 1, 2, 4, 5
_STREAM: Final = 1
_DEFAULT_WINDOW: Final = 65_535
_WINDOW: Final = 16 * 1024 * 1024
_FRAME: Final = 1024 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Longest message taken from a peer."""
_LARGEST_WINDOW: Final = 2**31 - 1

_header: Final = struct.Struct(">BHBBI")
_setting: Final = struct.Struct(">HI")
_prefix: Final = struct.Struct(">BI")
_word: Final = struct.Struct(">I")
_credentials: Final = struct.Struct("3i")
"""struct ucred: process, user, group."""


class DuplexCall(asyncio.Protocol):
    """The client's side of one call."""

    def __init__(
        self, head: bytes, on_message: Callable[[bytes], None], on_closed: Callable[[str], None]
    ) -> None:
        self._head = head
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

    def peer_pid(self) -> int | None:
        """The process that listens on the Unix socket this call goes to; None where it cannot be seen."""
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is None or found.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
            return None
        with contextlib.suppress(OSError):
            pid, _, _ = _credentials.unpack(
                found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _credentials.size)
            )
            return pid or None  # 0: it lives in another process namespace
        return None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        settings = b"".join(
            _setting.pack(name, value)
            for name, value in (
                (_SET_TABLE_SIZE, 0),
                (_SET_PUSH, 0),
                (_SET_WINDOW, _WINDOW),
                (_SET_FRAME, _FRAME),
            )
        )
        more = _word.pack(_WINDOW - _DEFAULT_WINDOW)
        self._transport.write(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, settings)
            + _frame(_WINDOW_UPDATE, 0, 0, more)
            + _frame(_HEADERS, _END_HEADERS, _STREAM, self._head)
        )

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
        while end - at >= 9:
            high, low, kind, flags, stream = _header.unpack_from(received, at)
            size = high << 16 | low
            if size > _FRAME:
                self._break("a frame is larger than was allowed")
                return
            if end - at - 9 < size:
                break
            payload = bytes(received[at + 9 : at + 9 + size])
            at += 9 + size
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
            if not flags & _ACK:
                self._write(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE:
            self._on_window(stream, payload)
        elif kind == _RST_STREAM:
            self._break("the peer reset the call")
        elif kind == _HEADERS and flags & _END_STREAM:
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
            if compressed or size > _MOST_BYTES:
                self._break("a message is compressed or too long")
                return
            if end - at - 5 < size:
                break
            one = bytes(message[at + 5 : at + 5 + size])
            at += 5 + size
            self._on_message(one)
        del message[:at]
        if flags & _END_STREAM:
            self._break("the peer ended the call")

    def _consume(self, size: int) -> None:
        """Give the window back in large pieces: what was received has been handled."""
        self._consumed += size
        if self._consumed > _WINDOW // 4:
            more = _word.pack(self._consumed)
            self._write(_frame(_WINDOW_UPDATE, 0, 0, more) + _frame(_WINDOW_UPDATE, 0, _STREAM, more))
            self._consumed = 0

    def _on_settings(self, payload: bytes) -> None:
        for name, value in _setting.iter_unpack(payload[: len(payload) // 6 * 6]):
            if name == _SET_WINDOW:
                self._call_window += value - self._peer_initial
                self._peer_initial = value
            elif name == _SET_FRAME:
                self._peer_frame = value
        self._write(_frame(_SETTINGS, _ACK, 0, b""))
        self._flush()

    def _on_window(self, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            self._break("a window update is malformed")
            return
        more = _word.unpack(payload)[0] & 0x7FFFFFFF
        if stream == 0:
            self._connection_window = min(_LARGEST_WINDOW, self._connection_window + more)
        elif stream == _STREAM:
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
            out.append(_header.pack(len(part) >> 16, len(part) & 0xFFFF, _DATA, 0, _STREAM))
            out.append(part)
        if out:
            self._transport.write(b"".join(out))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _break(self, why: str) -> None:
        self._why = why
        self.abort()


async def open_call(
    address: str,
    method: str,
    *,
    tls: ssl.SSLContext | None,
    on_message: Callable[[bytes], None],
    on_closed: Callable[[str], None],
    tls_name: str | None = None,
) -> DuplexCall:
    """Connect to `address` (host:port or unix:/path) and begin the call.

    With TLS, the peer's certificate must be for `tls_name`; for the host of the address where that is None.

    Raises:
        OSError: nobody listens there, or TLS failed.
    """
    loop = asyncio.get_running_loop()
    if address.startswith("unix:"):
        head = _call_head(method, "localhost", secure=tls is not None)
        path = address.removeprefix("unix:").removeprefix("//")
        _, call = await loop.create_unix_connection(lambda: DuplexCall(head, on_message, on_closed), path)
        return call
    host, _, port = address.rpartition(":")
    head = _call_head(method, address, secure=tls is not None)
    _, call = await loop.create_connection(
        lambda: DuplexCall(head, on_message, on_closed),
        host.strip("[]"),
        int(port),
        ssl=tls,
        server_hostname=tls_name if tls is not None else None,
    )
    return call


def client_context(ca: Path, cert: Path, key: Path) -> ssl.SSLContext:
    """TLS that shows a certificate and wants one of the same authority, for HTTP/2."""
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])
    return context


def _call_head(method: str, authority: str, *, secure: bool) -> bytes:
    """The request's headers. HPACK (RFC 7541): indexed where the static table has them, else literal."""
    return b"".join(
        (
            b"\x83",  # :method POST
            b"\x87" if secure else b"\x86",  # :scheme https | http
            b"\x04" + _literal(method),  # :path
            b"\x01" + _literal(authority),  # :authority
            b"\x00" + _literal("te") + _literal("trailers"),
            b"\x0f\x10" + _literal("application/grpc"),  # content-type
            b"\x0f\x2b" + _literal("superinfer"),  # user-agent
        )
    )


def _literal(text: str) -> bytes:
    raw = text.encode("ascii")
    assert len(raw) < 127, "no header of ours needs HPACK's longer lengths"
    return bytes((len(raw),)) + raw


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _header.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload
