"""A client that reads answers as any client of the OpenAI API would, and asks again where it was refused.

A refusal before anything was said (503 while every executor is down) is not a broken answer: it says when to
ask again, and the client does. Concurrency: one asyncio loop.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

import httpx

from superinfer_bench.chaos.answers import Answer
from superinfer_bench.chaos.cases import Case

_REFUSED: Final = frozenset({429, 503})
PATIENCE_S: Final = 180.0
_AGAIN_S: Final = 0.5


@dataclass(slots=True)
class Asked:
    """One request and its answer.

    Attributes:
        began_ms, ended_ms: on the machine's monotonic clock.
        refusals: times it was refused before it was served.
        token_ms: when each event came.
        executor: the one that began it, as the response's headers say.
    """

    case: Case
    answer: Answer
    began_ms: float
    ended_ms: float = 0.0
    refusals: int = 0
    broken: str = ""
    token_ms: list[float] = field(default_factory=list)
    request_id: str = ""
    executor: str = ""

    @property
    def tokens(self) -> int:
        """Of all choices, so far."""
        return sum(len(choice.tokens) for choice in self.answer.choices.values())


def now_ms() -> float:
    """The machine's monotonic clock: the same in every process."""
    return time.monotonic() * 1000.0


async def ask(
    client: httpx.AsyncClient,
    url: str,
    case: Case,
    *,
    on_tokens: Callable[[Asked], None] | None = None,
    on_begun: Callable[[Asked], None] | None = None,
    patience_s: float = PATIENCE_S,
) -> Asked:
    """Ask until served; never raises for what a server does wrong: `broken` says it."""
    asked = Asked(case, Answer(), now_ms())
    while True:
        asked.answer = Answer()
        asked.token_ms.clear()
        if on_begun is not None:
            on_begun(asked)
        try:
            async with asyncio.timeout(patience_s):
                await _once(client, f"{url}{case.path}", asked, on_tokens)
        except (httpx.HTTPError, TimeoutError) as error:
            asked.broken = f"{type(error).__name__} within {patience_s:g} s: {error}"
        if asked.answer.status not in _REFUSED:
            break
        asked.refusals += 1
        await asyncio.sleep(_AGAIN_S)
    asked.ended_ms = now_ms()
    if not asked.broken and not asked.answer.whole:
        asked.broken = asked.answer.error or "the answer just ended"
    return asked


async def _once(
    client: httpx.AsyncClient, url: str, asked: Asked, on_tokens: Callable[[Asked], None] | None
) -> None:
    answer = asked.answer
    async with client.stream("POST", url, json=asked.case.document) as response:
        answer.status = response.status_code
        answer.resumable = response.headers.get("x-superinfer-resumable") != "false"
        asked.executor = response.headers.get("x-superinfer-executor", "")
        asked.request_id = response.headers.get("x-request-id", "")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read_body(await response.aread())
            return
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                answer.read_event(line[6:].encode())
                asked.token_ms.append(now_ms())
                if on_tokens is not None:
                    on_tokens(asked)


@contextlib.asynccontextmanager
async def many_connections(patience_s: float = PATIENCE_S) -> AsyncIterator[httpx.AsyncClient]:
    """A client for many answers at once."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(timeout=patience_s, limits=limits) as client:
        yield client
