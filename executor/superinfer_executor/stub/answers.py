"""Ready-made OpenAI answers of the stub, as bytes; built from templates because it pays once per token."""

import json
from typing import Any

from superinfer_executor.stub.bodies import StubBody

DONE = b"data: [DONE]\n\n"


class Words:
    """The stub's text: token k of any choice is "tok<k>", separated by spaces. Grows as it is used."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._ends: list[int] = []

    def piece(self, token: int) -> bytes:
        """Text of one token; safe inside a JSON string."""
        self._grow(token)
        return self._pieces[token]

    def end(self, token: int) -> int:
        """Characters of text up to and including this token."""
        self._grow(token)
        return self._ends[token]

    def text(self, tokens: int) -> str:
        """Text of the first tokens."""
        self._grow(tokens)
        return b"".join(self._pieces[:tokens]).decode()

    def _grow(self, token: int) -> None:
        while len(self._pieces) <= token:
            number = len(self._pieces)
            piece = f"{' ' if number else ''}tok{number}".encode()
            self._pieces.append(piece)
            self._ends.append(len(piece) + (self._ends[-1] if self._ends else 0))


class Answer:
    """Chunks and final body of one request."""

    def __init__(self, body: StubBody, request_id: str, created_s: int, model: str, words: Words) -> None:
        self._body = body
        self._words = words
        kind = "chat.completion" if body.chat else "text_completion"
        self._head: dict[str, Any] = {
            "id": ("chatcmpl-" if body.chat else "cmpl-") + request_id,
            "object": kind,
            "created": created_s,
            "model": model,
        }
        self._parts: dict[int, tuple[bytes, bytes]] = {}

    def role_chunk(self, choice: int) -> bytes:
        """The first chunk of a chat choice; empty for completions."""
        if not self._body.chat:
            return b""
        return self._event(
            [{"index": choice, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
        )

    def token_chunk(self, choice: int, token: int, finish_reason: str) -> bytes:
        """The chunk of one token."""
        before, after = self._parts.get(choice) or self._make_parts(choice)
        if finish_reason:
            after = after.replace(b'"finish_reason":null', b'"finish_reason":"%s"' % finish_reason.encode())
        return before + self._words.piece(token) + after

    def usage_chunk(self, usage: dict[str, int]) -> bytes:
        """What ends a stream: usage where it was asked for, and [DONE]."""
        return (self._event([], usage=usage) if self._body.include_usage else b"") + DONE

    def final_body(self, tokens: list[int], finish_reasons: list[str], usage: dict[str, int]) -> bytes:
        """The whole answer of a request that does not stream; one entry per choice."""
        choices = []
        for index, (count, reason) in enumerate(zip(tokens, finish_reasons, strict=True)):
            text = self._words.text(count)
            choice: dict[str, Any] = {"index": index, "logprobs": None, "finish_reason": reason}
            if self._body.chat:
                choice["message"] = {"role": "assistant", "content": text}
            else:
                choice["text"] = text
            choices.append(choice)
        return json.dumps({**self._head, "choices": choices, "usage": usage}, separators=(",", ":")).encode()

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        head = dict(self._head)
        if self._body.chat:
            head["object"] = "chat.completion.chunk"
        document = json.dumps({**head, "choices": choices, **more}, separators=(",", ":"))
        return b"data: " + document.encode() + b"\n\n"

    def _make_parts(self, choice: int) -> tuple[bytes, bytes]:
        content: dict[str, Any] = {"delta": {"content": "\0"}} if self._body.chat else {"text": "\0"}
        event = self._event([{"index": choice, **content, "logprobs": None, "finish_reason": None}])
        before, _, after = event.partition(b"\\u0000")
        self._parts[choice] = before, after
        return before, after
