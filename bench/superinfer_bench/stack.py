"""SuperInfer's own processes, as a benchmark needs them: an engine, a sidecar, an ingress.

Promise: everything is up and answering inside the block and gone after it; a process that dies ends the
benchmark with the end of its log: a restart in the middle would be measured as if nothing had happened.
Concurrency: one asyncio loop.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from superinfer.serving.plan import UNWANTED_ENVIRONMENT
from superinfer.serving.ports import free_port
from superinfer.serving.process import ProcessEvent, ProcessSpec, Role
from superinfer.serving.supervisor import Supervisor, log_tail
from superinfer_bench.priority import apply_nice

START_S = 300.0
READY_S = 90.0
POLL_S = 0.1


class BenchFailed(Exception):
    """The benchmark cannot go on; the message says what happened."""


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """How an engine is started: arguments of `python -m superinfer_executor`, without the socket."""

    verb: str
    arguments: tuple[str, ...]
    vllm_arguments: tuple[str, ...] = ()

    def spec(self, run_dir: Path, environment: Mapping[str, str]) -> ProcessSpec:
        """The process."""
        command = [sys.executable, "-m", "superinfer_executor", self.verb]
        command += ["--socket", str(run_dir / "engine.sock"), *self.arguments]
        if self.vllm_arguments:
            command += ["--", *self.vllm_arguments]
        return ProcessSpec(
            "engine", Role.EXECUTOR, tuple(command), environment, run_dir / "logs" / "engine.log", grace_s=3.0
        )


@dataclass(frozen=True, slots=True)
class StackOptions:
    """One engine behind one sidecar behind one ingress."""

    engine: EngineCommand
    sidecar_arguments: tuple[str, ...] = ()
    ingress: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack.

    Attributes:
        url: of the ingress.
        request_log: one JSON line per finished request, by the ingress.
        socket: of the engine.
    """

    url: str
    request_log: Path
    socket: Path
    supervisor: Supervisor

    def pid(self, name: str) -> int:
        """Of "engine", "sidecar" or "ingress"."""
        found = next(child.pid for child in self.supervisor.children if child.spec.name == name)
        if found is None:
            raise BenchFailed(f"{name} is not running")
        return found

    def check(self) -> None:
        """Raise BenchFailed if anything crashed since it was ready."""
        for child in self.supervisor.children:
            if child.restarts or child.gave_up:
                raise BenchFailed(
                    f"{child.spec.name} died. The end of its log:\n{log_tail(child.spec.log, 30)}"
                )


def bench_environment() -> dict[str, str]:
    """For every process: one thread of arithmetic, no thread pinned to a core others use."""
    inherited = {name: value for name, value in os.environ.items() if name not in UNWANTED_ENVIRONMENT}
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        **inherited,
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


@contextlib.asynccontextmanager
async def engine_alone(engine: EngineCommand, run_dir: Path) -> AsyncIterator[Path]:
    """An engine and nothing in front of it; its socket."""
    async with _running([engine.spec(run_dir, bench_environment())]):
        yield run_dir / "engine.sock"


@contextlib.asynccontextmanager
async def serving(options: StackOptions, run_dir: Path) -> AsyncIterator[Stack]:
    """The whole stack, answering over HTTP."""
    port = free_port()
    config = _ingress_config(options, run_dir, port)
    _write(run_dir / "ingress.yaml", yaml.safe_dump(config, sort_keys=False))
    async with _running(_specs(options, run_dir)) as supervisor:
        stack = Stack(
            f"http://127.0.0.1:{port}", run_dir / "requests.jsonl", run_dir / "engine.sock", supervisor
        )
        await _until_ready(stack)
        yield stack


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _ingress_config(options: StackOptions, run_dir: Path, port: int) -> dict[str, Any]:
    return {
        "host": "127.0.0.1",
        "port": port,
        "auth": "Open",
        "withoutContract": "BestEffort",
        "accessLog": "Off",
        "executors": [{"name": "executor-0", "address": f"unix:{run_dir}/sidecar.sock", "pool": "default"}],
        "requestLog": str(run_dir / "requests.jsonl"),
        **options.ingress,
    }


def _specs(options: StackOptions, run_dir: Path) -> list[ProcessSpec]:
    env, logs = bench_environment(), run_dir / "logs"
    sidecar = [sys.executable, "-m", "superinfer_sidecar", "--listen", f"unix:{run_dir}/sidecar.sock"]
    sidecar += ["--engine-socket", str(run_dir / "engine.sock"), "--executor-name", "executor-0"]
    ingress = [sys.executable, "-m", "superinfer_ingress", "--config", str(run_dir / "ingress.yaml")]
    return [
        options.engine.spec(run_dir, env),
        ProcessSpec(
            "sidecar", Role.SIDECAR, (*sidecar, *options.sidecar_arguments), env, logs / "sidecar.log", 3.0
        ),
        ProcessSpec("ingress", Role.INGRESS, tuple(ingress), env, logs / "ingress.log", 3.0),
    ]


@contextlib.asynccontextmanager
async def _running(specs: Sequence[ProcessSpec]) -> AsyncIterator[Supervisor]:
    supervisor: Supervisor = Supervisor(specs, lambda event: _watch(supervisor, event))
    supervisor.start()
    try:
        try:
            async with asyncio.timeout(START_S):
                up = await supervisor.wait_ready()
        except TimeoutError:
            up = False
        if not up or any(child.restarts for child in supervisor.children):
            raise BenchFailed("\n\n".join(_last_words(supervisor)))
        for child in supervisor.children:
            if child.pid is not None:
                apply_nice(child.pid)  # an engine has started processes of its own meanwhile
        yield supervisor
    finally:
        await supervisor.stop()


async def _until_ready(stack: Stack) -> None:
    said = "nothing"
    async with httpx.AsyncClient(timeout=5) as client:
        for _ in range(int(READY_S / POLL_S)):
            with contextlib.suppress(httpx.HTTPError):
                answer = await client.get(f"{stack.url}/readyz")
                if answer.status_code == httpx.codes.OK:
                    return
                said = f"{answer.status_code} {answer.text[:500]}"
            stack.check()
            await asyncio.sleep(POLL_S)
    tails = [f"{c.spec.name}:\n{log_tail(c.spec.log, 12)}" for c in stack.supervisor.children]
    raise BenchFailed("\n\n".join([f"/readyz never said yes in {READY_S:g} s, last: {said}", *tails]))


def _watch(supervisor: Supervisor, event: ProcessEvent) -> None:
    """Crashes are found by `check`; the rest is in the logs."""
    for child in supervisor.children:
        if child.spec.name == event.name and child.pid is not None:
            apply_nice(child.pid)


def _last_words(supervisor: Supervisor) -> list[str]:
    return [
        f"{child.spec.name} did not start. The end of its log ({child.spec.log}):\n{log_tail(child.spec.log)}"
        for child in supervisor.children
        if not child.ready.is_set() or child.restarts
    ] or ["not everything started in time"]
