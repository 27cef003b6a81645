"""One request and its response on the ASGI interface: headers in, one answer out.

Promises: an answer is sent at most once, without waiting for the client to read it; every answer carries
x-request-id.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from superinfer_core.contract.headers import SLO_HEADERS
from superinfer_core.refusal import Refusal
from superinfer_ingress.config import LimitSettings
from superinfer_ingress.http.body import Receive, read_body
from superinfer_ingress.http.connection import SCOPE_KEY, ClientWriter
from superinfer_ingress.http.errors import HeaderList, error_body, error_headers

Scope = MutableMapping[str, Any]

_LONGEST_REQUEST_ID: Final = 128
_JSON: Final = (b"content-type", b"application/json")
_WANTED: Final = frozenset(name.encode() for name in SLO_HEADERS) | {b"authorization", b"x-request-id"}


class Exchange:
    """The HTTP side of one request."""

    __slots__ = ("_limits", "_receive", "fields", "request_id", "scope", "started", "writer")

    def __init__(self, scope: Scope, receive: Receive, *, request_id: str, limits: LimitSettings) -> None:
        self.scope = scope
        self.writer: ClientWriter = scope[SCOPE_KEY]
        self.request_id = request_id
        self.started = False
        self.fields = _fields_of(scope["headers"])
        self._receive = receive
        self._limits = limits

    @property
    def client_request_id(self) -> str:
        """The x-request-id the client sent, if it can be echoed; else ""."""
        given = self.fields.get("x-request-id", "")
        usable = 0 < len(given) <= _LONGEST_REQUEST_ID and given.isascii() and given.isprintable()
        return given if usable else ""

    @property
    def bearer(self) -> str:
        """The API key that was presented, or ""."""
        scheme, _, key = self.fields.get("authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else ""

    async def body(self) -> bytes:
        """The whole request body, within its bounds."""
        return await read_body(self._receive, self.scope["headers"], self._limits)

    def json(self, status: int, body: bytes, headers: HeaderList | None = None) -> None:
        """Answer with JSON."""
        self.answer(status, [_JSON, *(headers or [])], body)

    def answer(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Answer with a whole body."""
        self.started = True
        self.writer.answer(status, [*headers, self._id_header], body)

    def refuse(
        self, refusal: Refusal, status: int, headers: HeaderList | None = None, *, close: bool = False
    ) -> None:
        """Answer with an OpenAI error object; nothing happens where an answer has begun."""
        if self.started:
            return
        if close:
            self.writer.close_after()
        self.answer(status, [*error_headers(refusal), *(headers or [])], error_body(refusal))

    def begin(self, status: int, headers: HeaderList) -> None:
        """Begin a streamed answer; after it the writer may be used."""
        self.started = True
        self.writer.begin(status, [*headers, self._id_header])

    @property
    def _id_header(self) -> tuple[bytes, bytes]:
        return (b"x-request-id", (self.client_request_id or self.request_id).encode())


def _fields_of(headers: list[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """The headers the ingress reads, by lower-case name; one that was sent twice has both values."""
    fields: dict[str, str] = {}
    for name, value in headers:
        if name in _WANTED:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            fields[key] = f"{fields[key]}, {text}" if key in fields else text
    return fields
