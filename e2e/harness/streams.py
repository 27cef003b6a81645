"""Clients that read streamed answers event by event, all at once and one after the other, until told to stop.

Every client asks the same question each time, greedily or with a seed, so each of its answers has to be the
same text, whatever happened meanwhile. Thread-safe.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from e2e.harness.traffic import Door

_PATIENCE_S = 180.0


@dataclass(slots=True)
class Stream:
    """One answer, as far as its client has read it.

    Attributes:
        ids: every response id its events had.
        done: `[DONE]` was read.
        trouble: what broke it; "" where nothing did.
        longest_pause_s: longest time without an event.
    """

    client: int
    executor: str = ""
    request_id: str = ""
    text: str = ""
    ids: set[str] = field(default_factory=set)
    finish_reason: str = ""
    done: bool = False
    trouble: str = ""
    longest_pause_s: float = 0.0
    ended: float = 0.0

    @property
    def flaw(self) -> str:
        """What a client would complain about; "" where the answer is whole."""
        if self.trouble:
            return self.trouble
        if not self.done or not self.finish_reason:
            return f"it ended after {len(self.text)} characters without a finish reason or [DONE]"
        return "" if len(self.ids) == 1 else f"it has the ids {sorted(self.ids)}"

    def read(self, data: str) -> None:
        """Take one event's data."""
        if data == "[DONE]":
            self.done = True
            return
        event = json.loads(data)
        if "error" in event:
            self.trouble = self.trouble or f"error event: {event['error']}"
            return
        self.ids.add(event["id"])
        for choice in event["choices"]:
            self.text += choice["delta"].get("content") or ""
            self.finish_reason = choice["finish_reason"] or self.finish_reason


class Streams:
    """So many clients with answers of so many tokens each."""

    def __init__(
        self, door: Door, *, model: str, contract: str, clients: int, tokens: int, preface: str = ""
    ) -> None:
        """Keep what to ask, every question after the same preface; `once` and `running` ask it."""
        self._url = f"{door.url}/v1/chat/completions"
        self._headers = {"authorization": f"Bearer {door.key}", "x-slo-contract-id": contract}
        self._model = model
        self._tokens = tokens
        self._preface = preface
        self.clients = clients
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._under_way: dict[int, Stream] = {}
        self._answers: list[Stream] = []

    def once(self) -> list[Stream]:
        """Return one answer to each client, all asked at once."""
        with self._connections() as http, ThreadPoolExecutor(self.clients) as pool:
            return list(pool.map(lambda client: self._ask(http, client), range(self.clients)))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ask again and again while the block runs; at its end every answer asked for is read to its end."""
        with self._connections() as http, ThreadPoolExecutor(self.clients) as pool:
            asking = [pool.submit(self._go_on, http, client) for client in range(self.clients)]
            try:
                yield
            finally:
                self._stop.set()
            for one in asking:
                one.result()

    def under_way(self) -> dict[int, str]:
        """Return the executor that began each client's answer, of those that have text but not yet an end."""
        with self._lock:
            return {client: stream.executor for client, stream in self._under_way.items() if stream.text}

    def answers(self, *, since: float = 0.0) -> list[Stream]:
        """Return the answers that ended at or after an instant (`time.monotonic()`)."""
        with self._lock:
            return [stream for stream in self._answers if stream.ended >= since]

    def _go_on(self, http: httpx.Client, client: int) -> None:
        while not self._stop.is_set():
            stream = self._ask(http, client)
            with self._lock:
                self._answers.append(stream)
            if stream.trouble:
                self._stop.wait(0.5)

    def _ask(self, http: httpx.Client, client: int) -> Stream:
        stream = Stream(client)
        with self._lock:
            self._under_way[client] = stream
        try:
            self._read(http, stream)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            stream.trouble = repr(error)
        stream.ended = time.monotonic()
        with self._lock:
            del self._under_way[client]
        return stream

    def _read(self, http: httpx.Client, stream: Stream) -> None:
        heard = time.monotonic()
        body = self._body(stream.client)
        with http.stream("POST", self._url, json=body, headers=self._headers) as response:
            stream.executor = response.headers.get("x-superinfer-executor", "")
            stream.request_id = response.headers.get("x-request-id", "")
            if response.status_code != httpx.codes.OK:
                stream.trouble = f"status {response.status_code}: {response.read().decode()}"
                return
            for line in response.iter_lines():
                if line.startswith("data: "):
                    now = time.monotonic()
                    stream.longest_pause_s = max(stream.longest_pause_s, now - heard)
                    heard = now
                    stream.read(line.removeprefix("data: "))

    def _body(self, client: int) -> dict[str, Any]:
        # Half of them greedy, half of them sampled with a seed of their own.
        sampling = {"temperature": 0} if client % 2 else {"temperature": 0.9, "seed": client}
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": f"{client}: {self._preface}Tell a story of a harbour."}],
            "max_tokens": self._tokens,
            "ignore_eos": True,
            "stream": True,
            **sampling,
        }

    def _connections(self) -> httpx.Client:
        limits = httpx.Limits(max_connections=self.clients, max_keepalive_connections=self.clients)
        return httpx.Client(timeout=_PATIENCE_S, limits=limits)
