"""What every part of the story has at hand: a client, a screen, the ingress' books, the engine's process.

Concurrency: one asyncio loop.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superinfer.demo.client import Answer, Ask, Client
from superinfer.demo.screen import Screen
from superinfer.demo.targets import targets
from superinfer_core.prediction.profile import Profile


@dataclass(frozen=True, slots=True)
class Stage:
    """What every part of the story needs."""

    client: Client
    screen: Screen
    profile: Profile
    slowness: float
    request_log: Path
    engine_pid: Callable[[], int | None]
    attempt: int = 1

    def ask(
        self,
        name: str,
        contract: str,
        question: str,
        max_tokens: int,
        headers: Mapping[str, str] | None = None,
        sampling: Mapping[str, float] | None = None,
    ) -> Ask:
        """A request of this attempt; names are unique over attempts."""
        request_id = name if self.attempt == 1 else f"{name}-again{self.attempt - 1}"
        return Ask(request_id, contract, question, max_tokens, headers or {}, sampling or {})

    def target_ms(self, contract: str, metric: str) -> float | None:
        """What the contract promises."""
        promised = targets(self.profile, contract, slowness=self.slowness)
        return next((t.target_ms for t in promised if t.metric == metric), None)

    async def record(self, request_id: str) -> dict[str, Any]:
        """The ingress' own record of a finished request; it is written a moment after the answer."""
        for _ in range(50):
            lines = self.request_log.read_text().splitlines() if self.request_log.is_file() else []
            for line in reversed(lines):
                record: dict[str, Any] = json.loads(line)
                if record.get("id") == request_id:
                    return record
            await asyncio.sleep(0.1)
        return {}


@contextlib.asynccontextmanager
async def meanwhile(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Work that goes on during the block, and never beyond it: a story that is broken off leaves no task."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def trouble(answer: Answer) -> str:
    """What went wrong with an answer, in a line."""
    if answer.error:
        return f"{answer.status} {answer.code}: {answer.error.get('message', '')}"
    return "served, but not as promised"
