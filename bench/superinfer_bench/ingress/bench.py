"""The benchmark: every case for every proxy, rounds interleaved, medians kept.

Promise: the result file is rewritten after every case. Everything runs on the same cores at the same time
of day, so ratios mean something where absolute figures depend on the machine. Concurrency: one asyncio
loop, one case at a time.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from superinfer_bench.ingress.aims import aims
from superinfer_bench.ingress.cases import (
    HELD_PACE_MS,
    PACE_MS,
    Scale,
    held_streams,
    rate_for,
    small_requests,
    steady,
    streams,
)
from superinfer_bench.ingress.load_client import Order
from superinfer_bench.ingress.measure import Cost, LoadProcess, load_process
from superinfer_bench.ingress.peers import PACKAGES
from superinfer_bench.ingress.proxies import Proxy, our_proxy, peer_proxies
from superinfer_bench.report import document, tell, write

Say = Callable[[str], None]
STREAMS: Final = (1, 64, 256)


@dataclass(slots=True)
class Figures:
    """Of one proxy."""

    version: str = ""
    requests_per_core_s: list[float] = field(default_factory=list)
    tokens_per_core_s: dict[int, list[float]] = field(default_factory=dict)
    chunks_per_token: dict[int, float] = field(default_factory=dict)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    rate: float = 0.0
    peak_mib: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)


class IngressBench:
    """One benchmark; `run` once."""

    def __init__(
        self,
        out: Path,
        scale: Scale,
        say: Say,
        *,
        stream_counts: tuple[int, ...] = STREAMS,
        peers: tuple[str, ...] = tuple(PACKAGES),
    ) -> None:
        self._out = out
        self._scale = scale
        self._say = say
        self._counts = stream_counts
        self._peers = peers
        self._figures: dict[str, Figures] = {}
        self._memory: dict[str, float] = {}

    async def run(self) -> dict[str, Any]:
        """Everything; the document that was written."""
        with tempfile.TemporaryDirectory(prefix="superinfer-bench-") as directory:
            run_dir = Path(directory)
            async with (
                load_process() as load,
                peer_proxies(self._peers, run_dir / "peers", self._say) as peers,
            ):
                async with our_proxy(run_dir / "requests", step_ms=0.0) as ours:
                    await self._requests(load, [ours, *peers])
                    await self._latency(load, [ours, *peers])
                for count in self._counts:
                    async with our_proxy(run_dir / f"streams-{count}", step_ms=PACE_MS[count]) as ours:
                        await self._streams(load, [ours, *peers[1:]], count)
                await self._held(load, run_dir / "held")
        result = self._write()
        tell(self._aims(), self._say)
        return result

    async def _requests(self, load: LoadProcess, proxies: list[Proxy]) -> None:
        for proxy in proxies:
            await load.cost(proxy, _warm_up(small_requests(proxy, self._scale)))
        for number in range(self._scale.rounds):
            for proxy in proxies:
                if proxy.name == "direct":
                    continue
                cost = await self._cost(load, proxy, small_requests(proxy, self._scale))
                per_core = cost.done.ok / max(1e-6, cost.cpu_s)
                self._of(proxy).requests_per_core_s.append(per_core)
                self._say(f"requests, round {number + 1}: {proxy.name} {per_core:.0f} per core-second")
        self._write()

    async def _latency(self, load: LoadProcess, proxies: list[Proxy]) -> None:
        for number in range(self._scale.rounds):
            for proxy in proxies:
                rate = rate_for(proxy, self._scale)
                cost = await self._cost(load, proxy, steady(proxy, self._scale, rate))
                figures = self._of(proxy)
                figures.rate = rate
                figures.p50_ms.append(cost.done.p50_ms)
                figures.p99_ms.append(cost.done.p99_ms)
                self._say(
                    f"{rate:.0f} requests/s, round {number + 1}: {proxy.name}"
                    f" p50 {cost.done.p50_ms:.2f} ms, p99 {cost.done.p99_ms:.2f} ms"
                )
        self._write()

    async def _streams(self, load: LoadProcess, proxies: list[Proxy], count: int) -> None:
        for number in range(self._scale.rounds):
            for proxy in proxies:
                if proxy.name == "litellm" and number > 0:
                    continue  # slow, and nowhere near a close call
                order = streams(proxy, self._scale, count)
                cost = await self._cost(load, proxy, order)
                figures = self._of(proxy)
                expected = order.requests * self._scale.tokens
                # Ours may open a chat with an event for the role, which is no token.
                per_core = min(cost.done.tokens, expected) / max(1e-6, cost.cpu_s)
                figures.tokens_per_core_s.setdefault(count, []).append(per_core)
                figures.chunks_per_token[count] = cost.done.tokens / expected
                self._say(
                    f"{count} streams, round {number + 1}: {proxy.name} {per_core:.0f} tokens per core-second"
                )
                if proxy.name == "superinfer":
                    self._memory[f"sidecar, {count} streams"] = cost.peak_mib.get("sidecar", 0.0)
        self._write()

    async def _held(self, load: LoadProcess, run_dir: Path) -> None:
        async with our_proxy(run_dir, step_ms=HELD_PACE_MS) as ours:
            cost = await self._cost(load, ours, held_streams(ours, self._scale))
            for part in ("ingress", "sidecar"):
                self._memory[f"{part}, {self._scale.held_streams} streams"] = cost.peak_mib.get(part, 0.0)
        self._say("memory: " + ", ".join(f"{k} {v:.0f} MiB" for k, v in self._memory.items()))

    async def _cost(self, load: LoadProcess, proxy: Proxy, order: Order) -> Cost:
        cost = await load.cost(proxy, order)
        figures = self._of(proxy)
        for name, mib in cost.peak_mib.items():
            figures.peak_mib[name] = max(figures.peak_mib.get(name, 0.0), mib)
        for name, count in cost.done.failures.items():
            figures.failures[name] = figures.failures.get(name, 0) + count
        return cost

    def _of(self, proxy: Proxy) -> Figures:
        return self._figures.setdefault(proxy.name, Figures(proxy.version))

    def runs(self) -> list[dict[str, Any]]:
        """One row for every proxy and number of streams."""
        direct = self._figures.get("direct")
        return [
            _row(name, figures, count, direct)
            for name, figures in self._figures.items()
            for count in (self._counts if name != "direct" else (0,))
        ]

    def _aims(self) -> list[Any]:
        return aims(self.runs(), self._memory)

    def _write(self) -> dict[str, Any]:
        result = document(
            self._aims(),
            {
                "cores": len(os.sched_getaffinity(0)),
                "load_average": [round(value, 2) for value in os.getloadavg()],
                "versions": {name: f.version for name, f in self._figures.items() if f.version},
                "memory_mib": {name: round(mib, 1) for name, mib in self._memory.items()},
                "runs": self.runs(),
            },
        )
        write(self._out, result)
        return result


def _warm_up(order: Order) -> Order:
    return Order(
        order.url, order.path, order.body, max(8, order.requests // 20), order.headers, concurrency=8
    )


def _row(name: str, figures: Figures, streams_: int, direct: Figures | None) -> dict[str, Any]:
    tokens = figures.tokens_per_core_s.get(streams_, [])
    return {
        "proxy": name,
        "streams": streams_,
        "requests_per_core_s": _median(figures.requests_per_core_s),
        "tokens_per_core_s": _median(tokens),
        "chunks_per_token": figures.chunks_per_token.get(streams_),
        "rate_rps": figures.rate,
        "added_ms": {
            "p50": _added(figures.p50_ms, direct.p50_ms if direct else []),
            "p99": _added(figures.p99_ms, direct.p99_ms if direct else []),
        },
        "latency_ms": {"p50": _median(figures.p50_ms), "p99": _median(figures.p99_ms)},
        "rss_mb": round(sum(figures.peak_mib.values()), 1),
        "failures": figures.failures,
    }


def _median(values: list[float]) -> float | None:
    return round(median(values), 3) if values else None


def _added(values: list[float], direct: list[float]) -> float | None:
    if not values or not direct:
        return None
    return round(max(0.0, median(values) - median(direct)), 3)
