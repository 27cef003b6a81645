"""One measurement: what a proxy costs while the load client works through an order.

CPU is read at both ends of the work alone, after connections are open. One measurement at a time.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any

from superinfer_bench.ingress.load_client import Done, Order
from superinfer_bench.ingress.proxies import Proxy
from superinfer_bench.ingress.usage import usage
from superinfer_bench.priority import apply_nice
from superinfer_bench.stack import BenchFailed, bench_environment

SAMPLE_S = 0.25


@dataclass(frozen=True, slots=True)
class Cost:
    """An order done, and what it took.

    Attributes:
        cpu_s: of the proxy's processes.
        peak_mib: the most memory each part had at once.
    """

    done: Done
    cpu_s: float
    peak_mib: dict[str, float]


class LoadProcess:
    """The load client's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def cost(self, proxy: Proxy, order: Order) -> Cost:
        """Have the order carried out against `proxy`."""
        await self._send(json.dumps(asdict(order)))
        await self._event("connected")
        before = proxy.usage()
        await self._send("go")
        peak: dict[str, float] = {}
        sampling = asyncio.create_task(_sample(proxy, peak))
        try:
            found = await self._event("done")
        finally:
            sampling.cancel()
        cpu_s = proxy.usage().cpu_s - before.cpu_s
        del found["event"]
        return Cost(Done(**found), cpu_s, peak)

    async def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def _event(self, name: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        if found.get("event") != name:
            raise BenchFailed("the load client ended; see its error above")
        return found


async def _sample(proxy: Proxy, peak: dict[str, float]) -> None:
    while True:
        for name, pid in proxy.parts.items():
            peak[name] = max(peak.get(name, 0.0), usage([pid]).rss_mib)
        await asyncio.sleep(SAMPLE_S)


@contextlib.asynccontextmanager
async def load_process() -> AsyncIterator[LoadProcess]:
    """A load client, ended with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "superinfer_bench.ingress.load_client"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=bench_environment(),
    )
    apply_nice(process.pid)
    try:
        yield LoadProcess(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
        if process.returncode is None:
            process.kill()
            await process.wait()
