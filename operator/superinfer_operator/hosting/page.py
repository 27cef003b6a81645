"""/livez, /readyz and /metrics on one port; one short task per connection."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

_log = logging.getLogger("superinfer.operator")

_MAX_LINE: Final = 4096
_REQUEST_S: Final = 5.0

Check = Callable[[], str]
"""Why it fails; "" where it does not."""


class Page:
    """Serves probes and metrics."""

    def __init__(self, *, live: Check, ready: Check, registry: CollectorRegistry) -> None:
        self._checks = {"/livez": live, "/healthz": live, "/readyz": ready}
        self._registry = registry
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, where 0 was asked for."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_LINE)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_REQUEST_S):
                request = (await reader.readline()).decode("latin-1").split()
                while (await reader.readline()).strip():
                    pass
                writer.write(self._answer(request))
                await writer.drain()
        writer.close()

    def _answer(self, request: list[str]) -> bytes:
        if len(request) != 3 or request[0] != "GET":
            return _response(405, b"GET only\n")
        path = request[1].partition("?")[0]
        if path == "/metrics":
            return _response(200, generate_latest(self._registry), "text/plain; version=0.0.4")
        check = self._checks.get(path)
        if check is None:
            return _response(404, b"/livez, /readyz or /metrics\n")
        why = check()
        return _response(503 if why else 200, f"{why or 'ok'}\n".encode())


_PHRASES: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def _response(code: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {code} {_PHRASES[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
