"""Traffic while things happen: streamed chat completions through the ingress, every one accounted for.

A request is *served* when its stream ended with a finish reason, *refused* when the ingress said so with an
error object, and *failed* otherwise (broken stream, error inside it, connection lost). Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import httpx
import openai


class Outcome(StrEnum):
    """How a request ended for its client."""

    SERVED = "served"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as its client saw it."""

    outcome: Outcome
    text: str = ""
    tokens: int = 0
    ttft_s: float | None = None
    took_s: float = 0.0
    code: str = ""
    status: int = 0
    error: str = ""
    executor: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Door:
    """Where requests go: the ingress' address and a key."""

    url: str
    key: str

    def client(self) -> openai.OpenAI:
        """Make an OpenAI client that never retries on its own, so that nothing is hidden."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0, timeout=180)


def ask(
    door: Door,
    *,
    model: str,
    contract: str,
    prompt: str = "Say hello.",
    max_tokens: int = 16,
    seed: int = 7,
    to_the_last: bool = False,
    begun: Callable[[str], None] = lambda executor: None,
) -> Answer:
    """Send one streamed chat completion and read it to the end.

    Args:
        to_the_last: all of `max_tokens` are made, wherever the model would stop.
        begun: hears which executor began it.
    """
    started = time.monotonic()
    parts: list[str] = []
    ttft_s: float | None = None
    finished = False
    headers: dict[str, str] = {}
    try:
        with door.client() as client:
            raw = client.chat.completions.with_raw_response.create(
                model=model,
                messages=[{"role": "user", "content": prompt}],
                max_tokens=max_tokens,
                temperature=0,
                seed=seed,
                stream=True,
                extra_headers={"x-slo-contract-id": contract},
                extra_body={"ignore_eos": True} if to_the_last else None,
            )
            headers = {name.lower(): value for name, value in raw.headers.items()}
            begun(headers.get("x-superinfer-executor", ""))
            for chunk in raw.parse():
                for choice in chunk.choices:
                    if choice.delta.content:
                        ttft_s = ttft_s or time.monotonic() - started
                        parts.append(choice.delta.content)
                    finished = finished or choice.finish_reason is not None
    except openai.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        return Answer(
            Outcome.REFUSED,
            code=str(body.get("code") or ""),
            status=error.status_code,
            error=str(body.get("message") or error),
            took_s=time.monotonic() - started,
            headers={name.lower(): value for name, value in error.response.headers.items()},
        )
    except (openai.APIError, httpx.HTTPError) as error:
        return Answer(
            Outcome.FAILED, error=repr(error), text="".join(parts), took_s=time.monotonic() - started
        )
    return Answer(
        Outcome.SERVED if finished else Outcome.FAILED,
        text="".join(parts),
        tokens=len(parts),
        ttft_s=ttft_s,
        took_s=time.monotonic() - started,
        status=200,
        error="" if finished else "the stream ended without a finish reason",
        executor=headers.get("x-superinfer-executor", ""),
        headers=headers,
    )


class Traffic:
    """Clients that ask one after the other until told to stop."""

    def __init__(self, door: Door, *, model: str, contract: str, clients: int, max_tokens: int) -> None:
        """Keep what to ask; `running()` starts it."""
        self._door = door
        self._model = model
        self._contract = contract
        self._clients = clients
        self._max_tokens = max_tokens
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._answers: list[tuple[float, Answer]] = []
        self._streams: dict[int, str] = {}

    @contextmanager
    def running(self) -> Iterator[Traffic]:
        """Ask while the block runs; at its end every request asked is read to its end."""
        threads = [threading.Thread(target=self._run, args=(number,)) for number in range(self._clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def answers(self, *, since: float = 0.0) -> list[Answer]:
        """Return the answers to requests asked at or after an instant (`time.monotonic()`)."""
        with self._lock:
            return [answer for asked, answer in self._answers if asked >= since]

    def count(self, outcome: Outcome, *, since: float = 0.0) -> int:
        """Return how many ended in one way."""
        return sum(answer.outcome is outcome for answer in self.answers(since=since))

    def codes(self, *, since: float = 0.0) -> Counter[str]:
        """Return how often each refusal was given."""
        refused = (answer for answer in self.answers(since=since) if answer.outcome is Outcome.REFUSED)
        return Counter(answer.code for answer in refused)

    def busiest(self) -> str:
        """Return the executor that began most of the streams running now, "" where none runs."""
        with self._lock:
            running = Counter(self._streams.values())
        return max(running, key=lambda name: running[name], default="")

    def failures(self) -> list[str]:
        """Return what broke, in the clients' words."""
        return [answer.error for answer in self.answers() if answer.outcome is Outcome.FAILED]

    def _run(self, number: int) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            asked = time.monotonic()
            answer = ask(
                self._door,
                model=self._model,
                contract=self._contract,
                prompt=f"client {number}, turn {turn}",
                max_tokens=self._max_tokens,
                to_the_last=True,
                begun=lambda executor: self._begun(number, executor),
            )
            with self._lock:
                self._streams.pop(number, None)
                self._answers.append((asked, answer))
            if answer.outcome is not Outcome.SERVED:
                # A client that is refused waits a moment, as a real one would.
                self._stop.wait(0.2)

    def _begun(self, number: int, executor: str) -> None:
        with self._lock:
            self._streams[number] = executor
