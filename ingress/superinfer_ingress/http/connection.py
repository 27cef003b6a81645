"""One client connection: limits on headers and time, and a way to write chunks without a task per token.

Promises: headers are bounded in bytes, number and time before any request object exists; a response that
has begun can be written synchronously from the frame loop; output a client does not read is bounded; a
client that leaves is reported once, at once.
Concurrency: everything runs on the event loop; no method waits.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Final

import httptools
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_ingress.config import LimitSettings
from superinfer_ingress.http.errors import HeaderList, error_body

SCOPE_KEY: Final = "superinfer.client"
"""Where the application finds its ClientWriter in the ASGI scope."""

_LINGER_S: Final = 1.0
"""How long a refused connection may go on sending into the void before it is cut."""


class ClientWriter:
    """Writes one response straight to the transport: nothing here waits, so nothing here needs a task.

    It keeps the state uvicorn's own `send` would keep (response_started, response_complete, keep_alive), so
    that pipelining, keep-alive and shutdown go on as uvicorn means them.
    """

    __slots__ = ("_buffer_limit", "_chunked", "_cycle", "_flow", "_transport", "begun", "on_gone")

    def __init__(self, cycle: RequestResponseCycle, buffer_limit_bytes: int) -> None:
        self._cycle = cycle
        self._flow = cycle.flow
        self._transport = cycle.transport
        self._buffer_limit = buffer_limit_bytes
        # HTTP/1.0 has no chunked encoding: there the end of the connection ends the body.
        self._chunked = cycle.scope["http_version"] != "1.0"
        self.begun = False
        """The status line of a streamed answer is out: `chunk` may be called."""
        self.on_gone: Callable[[], None] | None = None

    @property
    def gone(self) -> bool:
        """Whether nobody listens any more."""
        return self._cycle.disconnected

    def answer(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Write a whole response."""
        if self._cycle.disconnected or self._cycle.response_started:
            return
        head = self._head(status, headers, b"content-length: %d\r\n\r\n" % len(body))
        head.append(b"" if self._cycle.scope["method"] == "HEAD" else body)
        self._transport.write(b"".join(head))
        self._complete()

    def begin(self, status: int, headers: HeaderList) -> None:
        """Write the status line and headers of a streamed response."""
        if self._cycle.disconnected or self._cycle.response_started:
            return
        if not self._chunked:
            self._cycle.keep_alive = False
        end = b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n"
        self._transport.write(b"".join(self._head(status, headers, end)))
        self.begun = True

    def chunk(self, data: bytes) -> bool:
        """Write one piece of a streamed body. False: the client reads too slowly for its buffer."""
        transport = self._transport
        if self._chunked:
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            transport.write(data)
        # The transport calls pause_writing above its high-water mark, so the common case costs one look.
        return not (self._flow.write_paused and transport.get_write_buffer_size() > self._buffer_limit)

    def end(self, data: bytes = b"") -> None:
        """Write the last piece of a streamed body."""
        if self._cycle.disconnected or self._cycle.response_complete:
            return
        if self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            self._transport.write(piece + b"0\r\n\r\n")
        elif data:
            self._transport.write(data)
        self._complete()

    def abort(self) -> None:
        """Drop the connection and whatever waits in its buffer."""
        self._transport.abort()

    def _head(self, status: int, headers: HeaderList, end: bytes) -> list[bytes]:
        cycle = self._cycle
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(end)
        return parts

    def close_after(self) -> None:
        """The connection ends with this response."""
        self._cycle.keep_alive = False

    def _complete(self) -> None:
        cycle = self._cycle
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._transport.close()
        cycle.on_response()


class IngressProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with bounds on headers, and the writer handed to the application."""

    limits: ClassVar[LimitSettings] = LimitSettings()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        self._in_headers = True
        self._ended_message = False
        self._header_timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._discarded_bytes = 0
        self._writers: set[ClientWriter] = set()

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=min(64 * 1024, self.limits.client_buffer_bytes // 2))
        self._arm_header_timer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm_header_timer()
        super().connection_lost(exc)
        # uvicorn marks only the newest cycle of a pipelined connection; every open one has lost its client.
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer._cycle.disconnected = True  # noqa: SLF001 - same module, same concept
            writer._cycle.message_event.set()  # noqa: SLF001
            if writer.on_gone is not None:
                writer.on_gone()

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unset_keepalive_if_required()
        if self._in_headers and self._header_timer is None:
            self._arm_header_timer()
        self._ended_message = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, RefusalCode.INVALID_REQUEST, "this server speaks HTTP/1.1 only; drop Upgrade")
        except httptools.HttpParserError:
            if self._header_bytes > self.limits.header_bytes:
                self._refuse_headers()
            else:
                self._refuse(
                    400,
                    RefusalCode.INVALID_REQUEST,
                    "the request is not valid HTTP/1.1; check its first lines",
                )
        else:
            # A header that has not ended yet is buffered by the parser. What ended a body is no header.
            if self._in_headers and not self._ended_message:
                self._header_bytes += len(data)
                if self._header_bytes > self.limits.header_bytes:
                    self._refuse_headers()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._discarded_bytes = 0
        self._header_bytes = 0

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        limits = self.limits
        if self._header_bytes > limits.header_bytes or len(self.headers) >= limits.header_count:
            self._header_bytes = limits.header_bytes + 1
            raise ValueError  # the parser wraps it; data_received answers
        super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._disarm_header_timer()
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        if (
            self.cycle.response_complete
        ):  # answered early (413, 401): the rest is read and dropped, not for ever
            self._discarded_bytes += len(body)
            if self._discarded_bytes > 2 * self.limits.body_bytes:
                self.transport.abort()
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        # Bytes after this one belong to the next request's headers.
        self._in_headers = self._ended_message = True
        self._header_bytes = 0

    @override
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        writer = ClientWriter(cycle, self.limits.client_buffer_bytes)
        cycle.scope[SCOPE_KEY] = writer  # type: ignore[typeddict-unknown-key]
        self._writers.add(writer)
        super()._start_asgi_task(cycle, app)

    @override
    def on_response_complete(self) -> None:
        self._writers = {writer for writer in self._writers if not writer._cycle.response_complete}  # noqa: SLF001
        super().on_response_complete()
        if self.transport.is_closing():
            # close() waits until the client has read everything, which may be never.
            self.loop.call_later(self.limits.body_read, self.transport.abort)
            return
        if self.cycle.more_body:
            self.loop.call_later(self.limits.body_read, self._cut_if_still_sending, self.cycle)

    @override
    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _cut_if_still_sending(self, cycle: RequestResponseCycle) -> None:
        if self.cycle is cycle and not self._in_headers and not self.transport.is_closing():
            self.transport.abort()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(400, RefusalCode.INVALID_REQUEST, msg)

    def _arm_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.limits.header_read, self._headers_late)

    def _disarm_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_late(self) -> None:
        self._header_timer = None
        if not self._in_headers or (self.cycle is not None and not self.cycle.response_complete):
            return
        if self._header_bytes == 0:
            self.transport.close()  # connected and never spoke: nobody waits for an answer
        else:
            seconds = self.limits.header_read
            self._refuse(408, RefusalCode.INVALID_REQUEST, f"headers did not arrive within {seconds:g} s")

    def _refuse_headers(self) -> None:
        limits = self.limits
        self._refuse(
            431,
            RefusalCode.TOO_LARGE,
            f"headers are larger than {limits.header_bytes} bytes or more than {limits.header_count};"
            " send fewer or shorter ones",
        )

    def _refuse(self, status: int, code: RefusalCode, message: str) -> None:
        """Answer without a request object, and close."""
        self._refused = True
        self._disarm_header_timer()
        transport = self.transport
        if transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            transport.close()  # garbage behind a request that is being answered: no second answer inside it
            return
        body = error_body(Refusal(code, message))
        transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (STATUS_LINE[status], len(body), body)
        )
        # Closing at once on a client that is still sending would reset the connection and lose the answer.
        if transport.can_write_eof():
            transport.write_eof()
        self.loop.call_later(_LINGER_S, transport.abort)
