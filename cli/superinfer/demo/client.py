"""A client that asks, streams, and keeps the times a user would notice.

Concurrency: one asyncio loop; every ask is its own task.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Ask:
    """One chat request."""

    id: str
    contract: str
    question: str
    max_tokens: int
    headers: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """What came back. Times are from sending, in milliseconds, as this client saw them."""

    ask: Ask
    sent_s: float
    status: int = 0
    error: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    token_ms: list[float] = field(default_factory=list)
    end_ms: float | None = None
    ended: bool = False
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def reached(self, tokens: int) -> None:
        """Wait until it has so many tokens, or will not get more."""
        while len(self.token_ms) < tokens and not self.ended:
            self._moved.clear()
            await self._moved.wait()

    def take(self, text: str, now_ms: float) -> None:
        """One more token."""
        self.text += text
        self.token_ms.append(now_ms)
        self._moved.set()

    def end(self) -> None:
        """Nothing more will come."""
        self.ended = True
        self._moved.set()

    @property
    def ttft_ms(self) -> float | None:
        """Time to the first token."""
        return self.token_ms[0] if self.token_ms else None

    @property
    def itl_ms(self) -> float | None:
        """Mean time between tokens."""
        if len(self.token_ms) < 2:
            return None
        return (self.token_ms[-1] - self.token_ms[0]) / (len(self.token_ms) - 1)

    @property
    def code(self) -> str | None:
        """The refusal's code."""
        code = self.error.get("code")
        return str(code) if code is not None else None

    @property
    def complete(self) -> bool:
        """An answer came to its end."""
        return self.status == httpx.codes.OK and self.end_ms is not None and not self.error

    def header_ms(self, name: str) -> float | None:
        """A figure of the response headers."""
        value = self.headers.get(f"x-superinfer-{name}-ms")
        return float(value) if value is not None else None


class Client:
    """Asks one server."""

    def __init__(self, http: httpx.AsyncClient, model: str) -> None:
        self._http = http
        self._model = model

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None = None) -> Answer:
        """Send and read to the end."""
        answer = self.begin(ask)
        await self._read(answer, on_text)
        return answer

    def begin(self, ask: Ask) -> Answer:
        """An answer that has not been asked for yet; hand it to `read`."""
        return Answer(ask, time.monotonic())

    async def read(self, answer: Answer) -> Answer:
        """Send, and fill in the answer while it comes."""
        await self._read(answer, None)
        return answer

    async def _read(self, answer: Answer, on_text: Callable[[str], None] | None) -> None:
        ask = answer.ask
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": ask.question}],
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "stream": True,
            **ask.sampling,
        }
        headers = {"x-request-id": ask.id, **ask.headers}
        if ask.contract:
            headers["x-slo-contract-id"] = ask.contract
        answer.sent_s = time.monotonic()
        try:
            async with self._http.stream(
                "POST", "/v1/chat/completions", json=body, headers=headers
            ) as response:
                answer.status = response.status_code
                answer.headers = dict(response.headers)
                if response.status_code != httpx.codes.OK:
                    answer.error = _error(await response.aread())
                    return
                async for line in response.aiter_lines():
                    if line.startswith("data: ") and _take(answer, line[6:], on_text):
                        return
        finally:
            answer.end()


def _take(answer: Answer, data: str, on_text: Callable[[str], None] | None) -> bool:
    now_ms = (time.monotonic() - answer.sent_s) * 1000
    if data == DONE:
        answer.end_ms = now_ms
        return True
    chunk = json.loads(data)
    if "error" in chunk:
        answer.error = chunk["error"]
        return False
    for choice in chunk.get("choices", ()):
        text = (choice.get("delta") or {}).get("content")
        if text:
            answer.take(text, now_ms)
            if on_text is not None:
                on_text(text)
    return False


def _error(body: bytes) -> Mapping[str, Any]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return {"message": body[:200].decode("utf-8", "replace")}
    return error if isinstance(error, dict) else {"message": str(error)}
