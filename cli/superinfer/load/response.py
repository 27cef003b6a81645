"""Reads one HTTP/1.1 response as its bytes arrive, and stamps every server-sent event.

Promise: the same events and body for any way the bytes are cut; a response that is not HTTP raises
`NotHttpError` and never loops. No I/O and no clock: the caller passes bytes and the time they came in.
Written for a client that shares its cores with what it measures: an event costs a few microseconds, and
nothing inside an event is parsed here.
"""

from enum import Enum, auto
from typing import Final

MAX_HEAD_BYTES: Final = 256 * 1024
DONE: Final = b"[DONE]"
_DATA: Final = b"data:"


class NotHttpError(Exception):
    """The other side does not speak HTTP/1.1 as we know it."""


class _Part(Enum):
    HEAD = auto()
    SIZED = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    UNTIL_CLOSE = auto()
    OVER = auto()


class Response:
    """One response; `feed` it until `over`.

    Attributes:
        status: 0 until the head has come.
        headers: by lower-case name.
        event_ms: arrival of every `data:` event except `[DONE]`.
        last_events: the last two events, as sent; where usage, finish reason and errors are.
        first_event: the first event, as sent.
        body: everything, where it is not an event stream.
        done: `[DONE]` has come.
        over: nothing more belongs to this response.
        reusable: the connection may carry another request.
    """

    __slots__ = (
        "_buffer", "_left", "_part", "_sse", "body", "done", "event_ms", "first_event", "headers",
        "last_events", "over", "reusable", "status", "streams",
    )  # fmt: skip

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.event_ms: list[float] = []
        self.first_event = b""
        self.last_events: tuple[bytes, bytes] = (b"", b"")
        self.body = bytearray()
        self.done = False
        self.over = False
        self.reusable = True
        self.streams = False
        self._part = _Part.HEAD
        self._buffer = bytearray()
        self._sse = b""
        self._left = 0

    def feed(self, data: bytes, now_ms: float) -> None:
        """Take what arrived at `now_ms`."""
        self._buffer += data
        while self._step(now_ms):
            pass

    def closed(self, now_ms: float) -> None:
        """The connection ended."""
        self.reusable = False
        if self._part is _Part.UNTIL_CLOSE:
            self._end(now_ms)

    def _step(self, now_ms: float) -> bool:
        """Take the next piece out of the buffer; False when it has to wait for more bytes."""
        part = self._part
        if part is _Part.CHUNK_SIZE:
            return self._chunk_size()
        if part is _Part.CHUNK:
            return self._chunk(now_ms)
        if part is _Part.CHUNK_END:
            return self._chunk_end()
        if part is _Part.HEAD:
            return self._head(now_ms)
        if part is _Part.SIZED:
            return self._sized(now_ms)
        if part is _Part.UNTIL_CLOSE:
            self._payload(self._take(len(self._buffer)), now_ms)
            return False
        if part is _Part.TRAILERS:
            return self._trailers(now_ms)
        return False

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _head(self, now_ms: float) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise NotHttpError("the response has no end of headers")
            return False
        lines = self._take(end + 4)[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise NotHttpError(f"not a status line: {lines[0][:80]!r}")
        if words[1].startswith("1"):  # 100 Continue: the response is still to come
            return True
        self.status = int(words[1])
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.reusable = self.headers.get("connection", "").lower() != "close"
        self.streams = self.headers.get("content-type", "").startswith("text/event-stream")
        self._begin_body(now_ms)
        return True

    def _begin_body(self, now_ms: float) -> None:
        length = self.headers.get("content-length")
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._part = _Part.CHUNK_SIZE
        elif length is not None:
            if not length.isdigit():
                raise NotHttpError(f"content-length is {length!r}")
            self._left = int(length)
            self._part = _Part.SIZED
            if self._left == 0:
                self._end(now_ms)
        elif self.status in {204, 304}:
            self._end(now_ms)
        else:
            self._part = _Part.UNTIL_CLOSE

    def _sized(self, now_ms: float) -> bool:
        data = self._take(min(self._left, len(self._buffer)))
        self._left -= len(data)
        self._payload(data, now_ms)
        if self._left == 0:
            self._end(now_ms)
        return False

    def _chunk_size(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > 1024:
                raise NotHttpError("the size of a chunk has no end")
            return False
        line = self._take(end + 2)[:end].split(b";", 1)[0]
        try:
            self._left = int(line, 16)
        except ValueError:
            raise NotHttpError(f"not the size of a chunk: {line[:40]!r}") from None
        self._part = _Part.CHUNK if self._left else _Part.TRAILERS
        return True

    def _chunk(self, now_ms: float) -> bool:
        if not self._buffer:
            return False
        data = self._take(min(self._left, len(self._buffer)))
        self._left -= len(data)
        self._payload(data, now_ms)
        if self._left == 0:
            self._part = _Part.CHUNK_END
        return True

    def _chunk_end(self) -> bool:
        if len(self._buffer) < 2:
            return False
        del self._buffer[:2]
        self._part = _Part.CHUNK_SIZE
        return True

    def _trailers(self, now_ms: float) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        if self._take(end + 2) == b"\r\n":
            self._end(now_ms)
            return False
        return True

    def _payload(self, data: bytes, now_ms: float) -> None:
        if not self.streams:
            self.body += data
            return
        text = self._sse + data if self._sse else data
        *events, self._sse = text.split(b"\n\n")
        for event in events:
            self._event(event, now_ms)

    def _event(self, event: bytes, now_ms: float) -> None:
        if not event.startswith(_DATA):
            return  # a comment, or a field we do not use
        data = event[len(_DATA) :].strip()
        if data == DONE:
            self.done = True
            return
        if not self.event_ms:
            self.first_event = data
        self.event_ms.append(now_ms)
        self.last_events = (self.last_events[1], data)

    def _end(self, now_ms: float) -> None:
        if self._sse:
            self._event(self._sse, now_ms)
            self._sse = b""
        self._part = _Part.OVER
        self.over = True
