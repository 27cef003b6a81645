"""Request bodies: read within bounds of size and time, and understood as far as the ingress must.

Promises: every body that cannot be served is refused with the field, the value and the fix, before anything
is queued; the client's bytes travel on untouched. What only the model's template can judge is left to it.
The fast path decodes four fields and skips the rest.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.words import shown
from superinfer_ingress.config import LimitSettings
from superinfer_ingress.http.errors import Refused, refused

Receive = Callable[[], Awaitable[dict[str, Any]]]

_MOST_CHOICES: Final = 128
_LARGEST_COUNT: Final = 2**31 - 1
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SMALL_TEXT_BYTES: Final = 4096
"""Room for the JSON around a prompt that is never worth measuring exactly."""


class ClientGone(Exception):
    """The client left before its request was complete."""


class _Fields(msgspec.Struct):
    model: str
    stream: bool | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


_FIXES: Final = {
    "model": "write the name of a served model as text; GET /v1/models lists them",
    "stream": "write true or false",
    "n": f"write a whole number from 1 to {_MOST_CHOICES}",
    "max_tokens": "write a whole number of tokens",
    "max_completion_tokens": "write a whole number of tokens",
}

_decode_fields: Final = msgspec.json.Decoder(_Fields).decode


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """What the ingress knows of a body."""

    raw: bytes
    model: str
    stream: bool
    choices: int
    max_tokens: int | None


async def read_body(receive: Receive, headers: Sequence[tuple[bytes, bytes]], limits: LimitSettings) -> bytes:
    """The whole body.

    Raises:
        Refused: it is too large, or did not arrive in time.
        ClientGone: the client left.
    """
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value[:20]) > limits.body_bytes:
            raise _too_large(limits)
        if name == b"content-encoding" and value.lower() != b"identity":
            encoding = shown(value.decode("latin-1"))
            raise refused(
                RefusalCode.INVALID_REQUEST,
                f"content-encoding: {encoding} is not supported; send the body as it is",
                "content-encoding",
            )
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limits.body_bytes:
            raise _too_large(limits)
        return body
    try:
        async with asyncio.timeout(limits.body_read):
            return await _read_rest(receive, body, limits)
    except TimeoutError:
        late = Refusal(
            RefusalCode.INVALID_REQUEST,
            f"the body did not arrive within {limits.body_read:g} s; send it in one go",
        )
        raise Refused(late, close=True) from None


async def _read_rest(receive: Receive, first: bytes, limits: LimitSettings) -> bytes:
    parts, size = [first], len(first)
    while True:
        if size > limits.body_bytes:
            raise _too_large(limits)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if not message.get("more_body", False):
            if size > limits.body_bytes:
                raise _too_large(limits)
            return b"".join(parts)


def _too_large(limits: LimitSettings) -> Refused:
    return refused(
        RefusalCode.TOO_LARGE, f"the body is larger than {limits.body_bytes} bytes; send a shorter prompt"
    )


def parse_body(raw: bytes, limits: LimitSettings) -> ParsedBody:
    """Understand a completions body.

    Raises:
        Refused: it is not UTF-8, not JSON, nested too deep, or a field has a wrong type.
    """
    if not raw.isascii():
        _check_utf8(raw)
    if raw.count(b"[") + raw.count(b"{") > limits.json_depth:
        _check_depth(raw, limits.json_depth)
    try:
        fields = _decode_fields(raw)
    except msgspec.ValidationError as error:
        raise _wrong_field(raw, error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _not_json(error) from None
    choices = 1 if fields.n is None else fields.n
    if not 1 <= choices <= _MOST_CHOICES:
        raise _unusable("n", fields.n)
    for name in ("max_tokens", "max_completion_tokens"):
        count = getattr(fields, name)
        if count is not None and not 0 <= count <= _LARGEST_COUNT:
            raise _unusable(name, count)
    limit = fields.max_completion_tokens
    return ParsedBody(
        raw=raw,
        model=fields.model,
        stream=fields.stream is True,
        choices=choices,
        max_tokens=fields.max_tokens if limit is None else limit,
    )


def check_length(body: ParsedBody, max_model_len: int, limits: LimitSettings) -> None:
    """Refuse a text that no tokenizer could fit into the model, by its bytes alone.

    Raises:
        Refused: context_length.
    """
    bound = max_model_len * limits.bytes_per_token
    if not bound or len(body.raw) <= bound + _SMALL_TEXT_BYTES:
        return
    name, size = _longest_text(body.raw)
    if size > bound:
        raise refused(
            RefusalCode.CONTEXT_LENGTH,
            f"{name}: {size} bytes of text cannot fit into the {max_model_len} tokens of {body.model};"
            " send a shorter one",
            name,
        )


def _longest_text(raw: bytes) -> tuple[str, int]:
    """Bytes of the longest single prompt. Decodes everything: only called for suspiciously large bodies."""
    document = msgspec.json.decode(raw)
    messages = document.get("messages")
    if isinstance(messages, list):
        return "messages", sum(_text_bytes(m.get("content")) for m in messages if isinstance(m, dict))
    prompt = document.get("prompt")
    if isinstance(prompt, list) and not all(isinstance(token, int) for token in prompt):
        return "prompt", max((_text_bytes(one) for one in prompt), default=0)
    return "prompt", _text_bytes(prompt)


def _text_bytes(content: Any) -> int:
    if isinstance(content, str):
        return len(content.encode("utf-8", "surrogatepass"))
    if isinstance(content, list):
        if content and isinstance(content[0], int):
            return len(content)  # token ids: each is one token, which is at least one byte
        return sum(_text_bytes(part.get("text")) for part in content if isinstance(part, dict))
    return 0


def _check_utf8(raw: bytes) -> None:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise refused(
            RefusalCode.INVALID_REQUEST,
            f"the body is not UTF-8: byte 0x{byte:02x} at offset {error.start}; encode it as UTF-8",
        ) from None


def _check_depth(raw: bytes, limit: int) -> None:
    depth = 0
    for byte in _STRINGS.sub(b"", raw):
        if byte in b"[{":
            depth += 1
            if depth > limit:
                raise refused(
                    RefusalCode.INVALID_REQUEST,
                    f"the body is nested deeper than {limit} levels; flatten it",
                )
        elif byte in b"]}":
            depth -= 1


def _not_json(error: Exception) -> Refused:
    reason = str(error) if isinstance(error, msgspec.DecodeError) else "it is nested too deep"
    return refused(RefusalCode.INVALID_REQUEST, f"the body is not JSON: {reason}; send one JSON object")


def _wrong_field(raw: bytes, error: msgspec.ValidationError) -> Refused:
    named = next((name for name in _FIXES if f"$.{name}" in str(error)), None)
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as worse:
        if named is None:
            return _not_json(worse)
        return refused(
            RefusalCode.INVALID_REQUEST,
            f"{named}: a number out of range is not usable; {_FIXES[named]}",
            named,
        )
    if not isinstance(document, dict):
        return refused(
            RefusalCode.INVALID_REQUEST,
            f"the body must be a JSON object, not {shown(document)}; wrap it in braces",
        )
    if "model" not in document:
        return refused(RefusalCode.INVALID_REQUEST, f"model: missing; {_FIXES['model']}", "model")
    if named is not None:
        return _unusable(named, document.get(named))
    return refused(RefusalCode.INVALID_REQUEST, f"the body is not usable: {error}")


def _unusable(name: str, value: object) -> Refused:
    return refused(RefusalCode.INVALID_REQUEST, f"{name}: {shown(value)} is not usable; {_FIXES[name]}", name)
