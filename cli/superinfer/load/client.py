"""A small HTTP/1.1 client for load: keep-alive connections, one request each at a time, times on arrival.

Promise: never retries (a retry would hide what is being measured), never raises for what a server does: a
broken connection is an answer with status 0.
Concurrency: one asyncio loop; any number of `exchange` calls at once.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Self, cast
from urllib.parse import urlsplit

from typing_extensions import override

from superinfer.load.response import NotHttpError, Response


def now_ms() -> float:
    """The clock of every time in a load run."""
    return time.perf_counter() * 1000.0


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A response and when its request was handed to the kernel."""

    response: Response
    sent_at_ms: float


class _Connection(asyncio.Protocol):
    """One connection; carries one request at a time."""

    def __init__(self) -> None:
        self.usable = True
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._over: asyncio.Future[None] | None = None

    async def exchange(self, request: bytes) -> Exchanged:
        """Send and wait for the whole response."""
        assert self._transport is not None
        response = self._response = Response()
        self._over = asyncio.get_running_loop().create_future()
        sent_at = now_ms()
        self._transport.write(request)
        try:
            await self._over
        finally:
            self._response = None
            if not (response.over and response.reusable):
                self.close()
        return Exchanged(response, sent_at)

    def close(self) -> None:
        """End the connection."""
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses of it

    @override
    def data_received(self, data: bytes) -> None:
        at, response = now_ms(), self._response
        if response is None:  # nothing was asked: not a connection to use again
            self.close()
            return
        try:
            response.feed(data, at)
        except NotHttpError:
            self.usable = False
            self._finish()
            return
        if response.over:
            self._finish()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._response is not None:
            self._response.closed(now_ms())
        self._finish()

    def _finish(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


class LoadClient:
    """All connections to one endpoint; `async with` closes them."""

    def __init__(self, url: str, *, timeout_s: float = 600.0, headers: dict[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            msg = f"load needs an http:// URL, not {url!r}"
            raise ValueError(msg)
        self._host, self._port = parts.hostname, parts.port or 80
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()
        common = {"host": f"{self._host}:{self._port}", "content-type": "application/json", **(headers or {})}
        self._common = "".join(f"{name}: {value}\r\n" for name, value in common.items())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection, answered or not."""
        for connection in self._all:
            connection.close()
        self._all.clear()
        self._idle.clear()

    def encode(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        """A POST as it goes on the wire; made ahead, so that sending costs one write."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = (
            f"POST {self._prefix}{path} HTTP/1.1\r\n{self._common}{lines}content-length: {len(body)}\r\n\r\n"
        )
        return head.encode("latin-1") + body

    async def open(self, count: int) -> None:
        """Have `count` connections ready."""
        self._idle += [await self._connect() for _ in range(count - len(self._idle))]

    async def exchange(self, request: bytes) -> Exchanged:
        """Send an encoded request; status 0 where there was no connection or no answer in time."""
        started = now_ms()
        try:
            connection = self._take() or await self._connect()
        except OSError:
            return Exchanged(Response(), started)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await connection.exchange(request)
        except TimeoutError:
            return Exchanged(Response(), started)
        finally:
            if connection.usable:
                self._idle.append(connection)
            else:
                self._all.discard(connection)

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            self._all.discard(connection)
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port)
        self._all.add(connection)
        return connection
