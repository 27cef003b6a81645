"""The client's end of one bidirectional gRPC call on a connection of its own, spoken by the event loop.

grpc.aio carries every message over two more threads and a dozen system calls; at the rate of engine steps
that is most of what a proxy spends. This is the same wire (see framing.py) for the one call a link makes.
`served_call.py` is the server's end.

Concurrency: the event loop.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from superinfer_proto.framing import (
    END_HEADERS,
    HEADERS,
    PREFACE,
    SETTINGS,
    STREAM,
    Framing,
    http2_frame,
    literal,
)

_credentials: Final = struct.Struct("3i")
"""struct ucred: process, user, group."""


class DuplexCall(Framing):
    """The client's end."""

    def __init__(
        self, head: bytes, on_message: Callable[[bytes], None], on_closed: Callable[[str], None]
    ) -> None:
        opening = PREFACE + SETTINGS + http2_frame(HEADERS, END_HEADERS, STREAM, head)
        super().__init__(opening, on_message, on_closed)

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


def call_begins(method: str, *, secure: bool) -> bytes:
    """How the headers of a call to `method` begin, in HPACK: indexed where the static table has them."""
    scheme = b"\x87" if secure else b"\x86"  # https | http
    return b"\x83" + scheme + b"\x04" + literal(method)  # :method POST, :scheme, :path


def _call_head(method: str, authority: str, *, secure: bool) -> bytes:
    """The request's headers."""
    return b"".join(
        (
            call_begins(method, secure=secure),
            b"\x01" + literal(authority),  # :authority
            b"\x00" + literal("te") + literal("trailers"),
            b"\x0f\x10" + literal("application/grpc"),  # content-type
            b"\x0f\x2b" + literal("superinfer"),  # user-agent
        )
    )
