"""A machine that serves with several real engines, whose processes may be killed at any time and come back.

Promise: nothing outlives the block. Engines come from the nursery and are started again the moment they end;
sidecars and the ingress are kept by `superinfer serve`'s own supervisor. Concurrency: one asyncio loop.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import yaml

from superinfer.serving.backoff import Backoff
from superinfer.serving.ports import free_port
from superinfer.serving.process import ProcessSpec, Role
from superinfer.serving.supervisor import Supervisor, log_tail
from superinfer_bench.stack import BenchFailed, bench_environment

START_S: Final = 300.0
POLL_S: Final = 0.1
MODEL: Final = "tiny"
_COPIES: Final = "copies of checkpoints go to "
_QUICK: Final = Backoff(first_s=0.05, most_s=0.5, healthy_s=1.0)


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """What runs.

    Attributes:
        executors: how many.
        checkpoints: KV blocks are saved and copied to a peer.
        memory_mib: for them, of each engine and of each sidecar.
        threads: of each engine's arithmetic.
        backoff: of sidecars and the ingress.
        vllm_arguments: for every engine.
        ingress: more of the ingress' configuration.
    """

    model: Path
    executors: int = 3
    checkpoints: bool = True
    memory_mib: int = 128
    threads: int = 1
    vllm_arguments: tuple[str, ...] = ()
    ingress: dict[str, Any] = field(default_factory=dict)
    backoff: Backoff = _QUICK


class Site:
    """A running machine; see `running_site`."""

    def __init__(self, options: SiteOptions, run_dir: Path, memory: Path) -> None:
        self.options = options
        self.run_dir = run_dir
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.request_log = run_dir / "requests.jsonl"
        self.names = tuple(f"executor-{number}" for number in range(options.executors))
        self.engine_starts = 0
        self.metrics_ports = {name: free_port() for name in self.names}
        self._memory = memory
        # Engines are forked with torch imported: what torch reads of its environment has to be there before.
        self._env = {**bench_environment(), "TORCHDYNAMO_DISABLE": "1"}
        self._env["OMP_NUM_THREADS"] = str(options.threads)
        self._engines: dict[str, int] = {}
        self._nursery: asyncio.subprocess.Process | None = None
        self._nursery_ready = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._stopping = False
        self._kept_down: list[str] | None = None
        (run_dir / "logs").mkdir()
        for name in self.names:
            (memory / name).mkdir()
        self._supervisor = Supervisor(
            [*(self._sidecar(name) for name in self.names), self._ingress()],
            lambda _: None,
            backoff=options.backoff,
        )

    # -- what can be killed --

    def engine_pids(self, name: str) -> list[int]:
        """The executor's process and what it started (EngineCore)."""
        pid = self._engines.get(name)
        if pid is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        return []

    def sidecar_pid(self, name: str) -> int | None:
        """Of the sidecar of an executor."""
        wanted = name.replace("executor", "sidecar")
        return next(child.pid for child in self._supervisor.children if child.spec.name == wanted)

    def holder_of(self, name: str) -> str:
        """Where an executor's copies go, as its sidecar said last; the next executor before it did."""
        log = self.run_dir / "logs" / f"{name.replace('executor', 'sidecar')}.log"
        told = [line for line in log.read_text().splitlines() if _COPIES in line] if log.exists() else []
        holder = told[-1].rpartition(_COPIES)[2].split(",")[0].strip() if told else ""
        next_one = self.names[(self.names.index(name) + 1) % len(self.names)]
        return holder if holder in self.names and holder != name else next_one

    @contextlib.contextmanager
    def keeping_engines_down(self) -> Iterator[None]:
        """An engine that ends inside the block starts again only after it."""
        self._kept_down = []
        try:
            yield
        finally:
            kept, self._kept_down = self._kept_down, None
            for name in kept:
                self._start_engine(name)

    # -- life --

    async def start(self) -> None:
        """Everything up and every executor serving."""
        with (self.run_dir / "logs" / "nursery.log").open("wb") as log:
            self._nursery = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "superinfer_bench.chaos.nursery"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._env,
            )
        self._reading = asyncio.create_task(self._read_nursery())
        self._supervisor.start()
        async with asyncio.timeout(START_S):
            await self._nursery_ready.wait()
            for name in self.names:
                self._start_engine(name)
            await self.until_serving(len(self.names))

    async def stop(self) -> None:
        """End everything."""
        self._stopping = True
        self._supervisor.kill()
        await self._supervisor.stop()
        for name in self.names:
            for pid in self.engine_pids(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._nursery is not None:
            assert self._nursery.stdin is not None
            self._nursery.stdin.close()
            await self._nursery.wait()
        if self._reading is not None:
            self._reading.cancel()

    async def until_serving(self, executors: int) -> None:
        """Return once so many executors serve, as the ingress sees it."""
        async with httpx.AsyncClient(timeout=5) as client:
            while len(await self.serving(client)) < executors:
                if any(child.gave_up for child in self._supervisor.children):
                    raise BenchFailed(self.last_words())
                await asyncio.sleep(POLL_S)

    async def serving(self, client: httpx.AsyncClient) -> dict[str, int]:
        """Executors that take work, and how many requests each has."""
        try:
            text = (await client.get(f"{self.url}/metrics")).text
        except httpx.HTTPError:
            return {}
        up = {name for name in self.names if _sample(text, "superinfer_executor_serving", name) == 1}
        return {name: int(_sample(text, "superinfer_executor_requests", name)) for name in sorted(up)}

    async def sidecar_metric(self, client: httpx.AsyncClient, name: str, metric: str) -> float:
        """A sample of an executor's sidecar; 0 where there is none."""
        try:
            text = (await client.get(f"http://127.0.0.1:{self.metrics_ports[name]}/metrics")).text
        except httpx.HTTPError:
            return 0.0
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{metric} ")]
        return float(values[0]) if values else 0.0

    def last_words(self) -> str:
        """The ends of all logs."""
        logs = sorted((self.run_dir / "logs").glob("*.log"))
        return "\n\n".join(f"{log.name}:\n{log_tail(log, 12)}" for log in logs)

    # -- engines --

    def _start_engine(self, name: str) -> None:
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        argv = ["--socket", str(self._socket(name)), "--model", str(self.options.model)]
        argv += ["--served-model-name", MODEL]
        if self.options.checkpoints:
            argv += [
                "--checkpoint-dir",
                str(self._memory / name),
                "--checkpoint-memory-mib",
                str(self.options.memory_mib),
            ]
        argv += ["--", *self.options.vllm_arguments]
        order = {
            "start": name,
            "argv": argv,
            "env": self._env,
            "log": str(self.run_dir / "logs" / f"{name}.log"),
        }
        self._nursery.stdin.write(json.dumps(order).encode() + b"\n")
        self.engine_starts += 1

    async def _read_nursery(self) -> None:
        assert self._nursery is not None
        assert self._nursery.stdout is not None
        async for line in self._nursery.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                self._nursery_ready.set()
            elif event["event"] == "started":
                self._engines[event["name"]] = event["pid"]
            elif self._engines.get(event["name"]) == event["pid"]:
                del self._engines[event["name"]]
                if self._kept_down is not None:
                    self._kept_down.append(event["name"])
                elif not self._stopping:
                    self._start_engine(event["name"])

    def _socket(self, name: str) -> Path:
        return self.run_dir / f"{name}.sock"

    # -- the rest --

    def _sidecar(self, name: str) -> ProcessSpec:
        command = [sys.executable, "-m", "superinfer_sidecar"]
        command += ["--listen", self._address(name), "--engine-socket", str(self._socket(name))]
        command += [
            "--executor-name",
            name,
            "--stall-s",
            "60",
            "--metrics-port",
            str(self.metrics_ports[name]),
        ]
        if self.options.checkpoints:
            command += [
                "--checkpoint-dir",
                str(self._memory / name),
                "--checkpoint-store-mib",
                str(self.options.memory_mib),
            ]
        label = name.replace("executor", "sidecar")
        return ProcessSpec(
            label, Role.SIDECAR, tuple(command), self._env, self.run_dir / "logs" / f"{label}.log", 3.0
        )

    def _address(self, name: str) -> str:
        return f"unix:{self.run_dir / name}-s.sock"

    def _ingress(self) -> ProcessSpec:
        config = {
            "host": "127.0.0.1",
            "port": self.port,
            "auth": "Open",
            "withoutContract": "BestEffort",
            "accessLog": "Off",
            # Everything shares the cores of one machine: what is late is not lost.
            "staleAfterMs": 1000,
            "deadAfterMs": 15_000,
            "executors": [
                {"name": name, "address": self._address(name), "faultDomain": [f"node/{name}"]}
                for name in self.names
            ],
            "requestLog": str(self.request_log),
            **self.options.ingress,
        }
        path = self.run_dir / "ingress.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        command = (sys.executable, "-m", "superinfer_ingress", "--config", str(path))
        return ProcessSpec(
            "ingress", Role.INGRESS, command, self._env, self.run_dir / "logs" / "ingress.log", 3.0
        )


def kill(pids: Sequence[int | None]) -> float:
    """SIGKILL for all of them; the moment, on the machine's monotonic clock in ms."""
    at_ms = time.monotonic() * 1000.0
    for pid in pids:
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return at_ms


@contextlib.asynccontextmanager
async def running_site(options: SiteOptions) -> AsyncIterator[Site]:
    """A machine that serves inside the block."""
    memory = Path(tempfile.mkdtemp(prefix="superinfer-chaos-", dir="/dev/shm"))
    run_dir = Path(tempfile.mkdtemp(prefix="chaos-"))
    site = Site(options, run_dir, memory)
    kept = False
    try:
        try:
            await site.start()
        except TimeoutError:
            raise BenchFailed(f"not everything started in {START_S:g} s\n{site.last_words()}") from None
        yield site
    except BaseException:
        kept = True
        raise
    finally:
        await site.stop()
        shutil.rmtree(memory, ignore_errors=True)
        if not kept:
            shutil.rmtree(run_dir, ignore_errors=True)


def _sample(text: str, metric: str, executor: str) -> float:
    for line in text.splitlines():
        sample, _, value = line.rpartition(" ")
        if sample.startswith(f"{metric}{{") and f'executor="{executor}"' in sample:
            return float(value)
    return 0.0
