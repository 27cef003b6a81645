"""An OpenAI server without a model, for the peers: as cheap as our own engine stub, in a process of its own.

One chunk per token, every stream of a pace stepped at the same instant, as an engine does it. `seed` in
the body is the pace in milliseconds a token (0: at once). Not for anything but benchmarks: it trusts its
client.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import uvloop
from typing_extensions import override

_WORD: Final = " token"
_STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_MODELS: Final = json.dumps(
    {"object": "list", "data": [{"id": "stub", "object": "model", "created": 1, "owned_by": "stub"}]}
).encode()


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(document: dict[str, Any] | str) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document, separators=(",", ":"))
    return _chunked(b"data: " + text.encode() + b"\n\n")


def _chunk(chat: bool, text: str, finish: str | None) -> dict[str, Any]:
    kind = "chat.completion.chunk" if chat else "text_completion"
    piece = {"delta": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {
        "id": "cmpl-1",
        "object": kind,
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, **piece, "logprobs": None, "finish_reason": finish}],
    }


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": tokens + 5}


def whole_answer(chat: bool, tokens: int) -> bytes:
    """A complete answer that was not streamed."""
    text = _WORD * tokens
    piece = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    document = {
        "id": "cmpl-1",
        "object": "chat.completion" if chat else "text_completion",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, **piece, "logprobs": None, "finish_reason": "length"}],
        "usage": _usage(tokens),
    }
    return json.dumps(document, separators=(",", ":")).encode()


@dataclass(slots=True)
class _Stream:
    left: int
    total: int
    chat: bool
    usage: bool
    write: Callable[[bytes], None]


class Steps:
    """Every stream of one pace, stepped together."""

    def __init__(self, pace_ms: float) -> None:
        self._pace_s = pace_ms / 1000.0
        self._streams: list[_Stream] = []
        self._ticking = False
        self._middle = {chat: _event(_chunk(chat, _WORD, None)) for chat in (True, False)}
        self._last = {chat: _event(_chunk(chat, _WORD, "length")) for chat in (True, False)}

    def add(self, stream: _Stream) -> None:
        """Its first token comes with the next step."""
        self._streams.append(stream)
        if not self._ticking:
            self._ticking = True
            loop = asyncio.get_running_loop()
            loop.call_at(loop.time() + self._pace_s, self._step, loop.time() + self._pace_s)

    def _step(self, due_s: float) -> None:
        for stream in self._streams:
            stream.left -= 1
            if stream.left > 0:
                stream.write(self._middle[stream.chat])
                continue
            stream.write(self._last[stream.chat])
            end = b""
            if stream.usage:
                end = _event({**_chunk(stream.chat, "", None), "choices": [], "usage": _usage(stream.total)})
            stream.write(end + _event("[DONE]") + b"0\r\n\r\n")
        self._streams = [stream for stream in self._streams if stream.left > 0]
        loop = asyncio.get_running_loop()
        if self._streams:
            following = max(due_s + self._pace_s, loop.time())
            loop.call_at(following, self._step, following)
        else:
            self._ticking = False


class _Connection(asyncio.Protocol):
    def __init__(self, steps: dict[float, Steps]) -> None:
        self._steps = steps
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            size = _body_size(head, self._buffer[end + 4 :])
            if size is None:
                return
            body, taken = size
            path = self._buffer[: self._buffer.index(b"\r\n")].split(b" ")[1]
            self._buffer = self._buffer[end + 4 + taken :]
            self._answer(path, body)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _answer(self, path: bytes, body: bytes) -> None:
        if not path.endswith(b"completions"):
            self._whole(_MODELS)
            return
        asked = json.loads(body)
        chat = b"chat" in path
        tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 1)
        if not asked.get("stream"):
            self._whole(whole_answer(chat, tokens))
            return
        pace = float(asked.get("seed") or 0)
        usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self._write(_STREAM_HEAD)
        self._steps.setdefault(pace, Steps(pace)).add(_Stream(tokens, tokens, chat, usage, self._write))

    def _whole(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._write(head + body)


def _body_size(head: bytes, rest: bytes) -> tuple[bytes, int] | None:
    """(body, bytes taken), or None until it is all there; chunked bodies too, which some proxies send."""
    if b"transfer-encoding: chunked" in head:
        body, at = b"", 0
        while True:
            line = rest.find(b"\r\n", at)
            if line < 0:
                return None
            size = int(rest[at:line], 16)
            if len(rest) < line + 2 + size + 2:
                return None
            if size == 0:
                return body, line + 4
            body += rest[line + 2 : line + 2 + size]
            at = line + 2 + size + 2
    at = head.find(b"content-length:")
    size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    return (rest[:size], size) if len(rest) >= size else None


async def _serve(port: int) -> None:
    steps: dict[float, Steps] = {}
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(steps), "127.0.0.1", port, backlog=4096
    )
    async with server:
        await server.serve_forever()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="superinfer_bench.ingress.openai_stub")
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(_serve(parser.parse_args(argv).port))


if __name__ == "__main__":
    main()
