"""The load of bench-ingress, in a process of its own so that its CPU is nobody else's.

`python -m superinfer_bench.ingress.load_client` reads one JSON order per line and answers each with one
line: first {"event":"connected"}; after "go" on the next line, the result. So the caller reads CPU
counters at both ends of the work alone. Concurrency: one asyncio loop.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop

from superinfer.load.client import Exchanged, LoadClient, now_ms
from superinfer.percentiles import nearest_rank


@dataclass(frozen=True, slots=True)
class Order:
    """What to send.

    Attributes:
        concurrency: closed loop, so many at a time; 0 for an open loop.
        rate: open loop, requests a second.
        requests: in all.
    """

    url: str
    path: str
    body: dict[str, Any]
    requests: int
    headers: dict[str, str] = field(default_factory=dict)
    concurrency: int = 0
    rate: float = 0.0
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it."""

    ok: int
    failed: int
    tokens: int
    wall_s: float
    p50_ms: float
    p99_ms: float
    failures: dict[str, int]


async def perform(client: LoadClient, order: Order) -> Done:
    """Send everything and wait for it."""
    body = json.dumps(order.body, separators=(",", ":")).encode()
    request = client.encode(order.path, body, order.headers)
    started = now_ms()
    if order.concurrency:
        numbers = iter(range(order.requests))
        workers = [_closed(client, request, numbers) for _ in range(order.concurrency)]
        results = [e for those in await asyncio.gather(*workers) for e in those]
    else:
        results = await _open(client, request, order)
    return _summary(results, (now_ms() - started) / 1000.0)


_Result = tuple[float, int, int, bool]
"""Latency, tokens, status, whole."""


def _result(exchanged: Exchanged, ended: float) -> _Result:
    response = exchanged.response
    tokens = len(response.event_ms)
    if tokens and b'"choices":[]' in response.last_events[1].replace(b" ", b""):
        tokens -= 1
    whole = response.over and (response.done or not response.streams)
    return ended - exchanged.sent_at_ms, tokens, response.status, whole


async def _closed(client: LoadClient, request: bytes, numbers: Iterator[int]) -> list[_Result]:
    results = []
    for _ in numbers:
        exchanged = await client.exchange(request)
        results.append(_result(exchanged, now_ms()))
        if exchanged.response.status == 0:
            await asyncio.sleep(0.05)  # a broken server must not be hammered
    return results


async def _open(client: LoadClient, request: bytes, order: Order) -> list[_Result]:
    async def one() -> _Result:
        exchanged = await client.exchange(request)
        return _result(exchanged, now_ms())

    start, sending = now_ms(), []
    for number in range(order.requests):
        wait_ms = start + number * 1000.0 / order.rate - now_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000.0)
        sending.append(asyncio.create_task(one()))
    return list(await asyncio.gather(*sending))


def _summary(results: list[_Result], wall_s: float) -> Done:
    failures: dict[str, int] = {}
    for _, _, status, whole in results:
        if status != 200 or not whole:
            name = "broken" if status == 200 else str(status)
            failures[name] = failures.get(name, 0) + 1
    good = [r for r in results if r[2] == 200 and r[3]]
    latencies = [r[0] for r in good]
    return Done(
        ok=len(good),
        failed=len(results) - len(good),
        tokens=sum(r[1] for r in good),
        wall_s=wall_s,
        p50_ms=nearest_rank(latencies, 0.5),
        p99_ms=nearest_rank(latencies, 0.99),
        failures=failures,
    )


async def _orders() -> None:
    loop = asyncio.get_running_loop()

    async def line() -> str:
        return await loop.run_in_executor(None, sys.stdin.readline)

    def tell(document: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()

    while text := await line():
        order = Order(**json.loads(text))
        async with LoadClient(order.url, timeout_s=order.timeout_s) as client:
            await client.open(order.concurrency or 32)
            tell({"event": "connected"})
            if not await line():
                return
            tell({"event": "done", **asdict(await perform(client, order))})


if __name__ == "__main__":
    uvloop.run(_orders())
