"""A few GET pages over HTTP for Prometheus and probes: /metrics, /livez, /readyz.

On the sidecar's own loop, so a scrape sees one moment. Connections are short, bounded in size and in time.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

Page = Callable[[], tuple[int, str, bytes]]
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}
_PLAIN: Final = "text/plain; charset=utf-8"
_MOST_HEAD_BYTES: Final = 8192
_PATIENCE_S: Final = 5.0


async def start_pages(host: str, port: int, pages: Mapping[str, Page]) -> asyncio.Server:
    """A listening server of these pages; closing it is the caller's."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                writer.write(_response(await _head(reader), pages))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, host, port, limit=_MOST_HEAD_BYTES)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""


def _response(head: bytes, pages: Mapping[str, Page]) -> bytes:
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
        status, kind, body = 400, _PLAIN, b"GET only\n"
    else:
        page = pages.get(words[1].partition(b"?")[0].decode("latin-1"))
        status, kind, body = page() if page is not None else (404, _PLAIN, b"no such page\n")
    lines = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return lines.encode() + (b"" if words[0] == b"HEAD" else body)
