"""Real processes for the tests of the ingress: stub engines, sidecars, ingresses; and a sidecar by script."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest
import yaml

from superinfer_proto.v1 import engine_pb2, sidecar_pb2, sidecar_pb2_grpc, work_pb2

PATIENCE_S = 30.0
MODEL = "stub"


def contract(name: str, *, namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    """A contract document; objectives as {"TTFT": 300} mean P99."""
    objectives = spec.pop("objectives", {"TTFT": 20_000})
    if isinstance(objectives, dict):
        objectives = [{"metric": m, "percentile": 99, "targetMs": t} for m, t in objectives.items()]
    return {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "SLOContract",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"objectives": objectives, **spec},
    }


def chat(tokens: int = 4, *, words: str = "hello", **more: Any) -> dict[str, Any]:
    """A chat body for the stub."""
    messages = [{"role": "user", "content": words}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, "ignore_eos": True, **more}


def under(contract_id: str, **more: str) -> dict[str, str]:
    """Headers that name a contract."""
    return {"x-slo-contract-id": contract_id, **more}


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until `condition` gives something true; what is waited for is in the failure."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"waited in vain for {what}")
        time.sleep(0.01)


class Process:
    """A child that says when it is ready."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as errors:
            self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)
        self.ready: dict[str, Any] = {}
        self._said_ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if b'"ready"' in line and not self.ready:
                self.ready = json.loads(line)
                self._said_ready.set()
        self._said_ready.set()

    def wait_ready(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        assert self._said_ready.wait(patience_s), f"not ready: {self.log}"
        assert self.ready, f"died: {self.log}"
        return self.ready

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def stop(self) -> None:
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.child.wait()
        if self.child.stdout is not None:
            self.child.stdout.close()


@dataclass
class Executor:
    name: str
    address: str
    engine: Process | None = None
    sidecar: Process | None = None
    pool: str = "default"
    socket: Path | None = None

    @property
    def settings(self) -> dict[str, str]:
        return {"name": self.name, "address": self.address, "pool": self.pool}


@dataclass
class Ingress:
    process: Process
    url: str
    port: int
    contracts: Path
    request_log: Path
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S)

    def chat(self, tokens: int = 4, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json=chat(tokens, **more), headers=headers)

    def metric(self, name: str, **labels: str) -> float:
        """A sample's value, summed over the labels that are not given; 0 where there is none."""
        total = 0.0
        for line in self.client.get("/metrics").text.splitlines():
            sample, _, value = line.rpartition(" ")
            if sample.partition("{")[0] == name and all(f'{k}="{v}"' in sample for k, v in labels.items()):
                total += float(value)
        return total

    def idle(self) -> None:
        """Nothing is in flight any more, here or on the executors."""
        until(lambda: self.metric("superinfer_requests_in_flight") == 0, "nothing in flight")
        until(lambda: self.metric("superinfer_executor_requests") == 0, "nothing on the executors")
        until(lambda: self.metric("superinfer_ledger_tokens") == 0, "an empty ledger")

    def records(self, count: int) -> list[dict[str, Any]]:
        """The request log, once it has `count` lines."""

        def read() -> list[dict[str, Any]]:
            lines = self.request_log.read_text().splitlines() if self.request_log.exists() else []
            return [json.loads(line) for line in lines]

        until(lambda: len(read()) >= count, f"{count} lines in the request log")
        return read()

    def attainment(self, key: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        answer = self.client.get(f"/v1/contracts/{key}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["attainment"]

    def stop(self) -> None:
        self.client.close()
        self.process.stop()


def _flags(options: dict[str, Any]) -> list[str]:
    return [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", str(value))]


class Rig:
    """Starts processes in one directory and stops them all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._number = 0
        self._to_stop: list[Any] = []

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}{self._number}"

    def _start(self, name: str, *command: str) -> Process:
        process = Process([sys.executable, "-m", *command], self.directory / f"{name}.log")
        self._to_stop.append(process)
        return process

    def engine(self, socket: Path, **flags: Any) -> Process:
        ours = ("--socket", str(socket), "--served-model-name", MODEL, *_flags(flags))
        return self._start(self._name("engine"), "superinfer_executor.stub", *ours)

    def executor(
        self, *, pool: str = "default", sidecar: dict[str, Any] | None = None, **engine: Any
    ) -> Executor:
        name = self._name("executor")
        socket = self.directory / f"{name}.sock"
        address = f"unix:{self.directory / name}.grpc"
        more = _flags(sidecar or {})
        running = self.engine(socket, **{"step_ms": 2, **engine})
        beside = self._start(
            f"sidecar-{name}",
            "superinfer_sidecar",
            *("--listen", address, "--engine-socket", str(socket), "--executor-name", name),
            *("--metrics-port", "-1", *more),
        )
        return Executor(name, address, running, beside, pool, socket)

    def ingress(
        self,
        executors: list[Executor],
        contracts: list[dict[str, Any]] | None = None,
        *,
        wait: bool = True,
        **config: Any,
    ) -> Ingress:
        name = self._name("ingress")
        directory = self.directory / f"{name}-contracts"
        directory.mkdir()
        (directory / "given.yaml").write_text(yaml.safe_dump_all(contracts or []))
        log = self.directory / f"{name}.jsonl"
        document = {
            "port": 0,
            "executors": [executor.settings for executor in executors],
            "contracts": str(directory),
            "requestLog": str(log),
            "auth": "Open",
            "withoutContract": "BestEffort",
            # A busy test machine is late at times; what these bounds do has tests of its own.
            "staleAfterMs": 2000,
            "deadAfterMs": 10_000,
            **config,
        }
        path = self.directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        process = self._start(name, "superinfer_ingress", "--config", str(path))
        port = int(process.wait_ready()["port"])
        ingress = Ingress(process, f"http://127.0.0.1:{port}", port, directory, log)
        self._to_stop.append(ingress)
        if wait and executors:
            until(lambda: ingress.client.get("/readyz").status_code == 200, "a serving executor")
        return ingress

    def close(self) -> None:
        for one in reversed(self._to_stop):
            one.stop()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Processes of one test."""
    with contextlib.closing(Rig(tmp_path)) as one:
        yield one


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Processes that many tests share."""
    with contextlib.closing(Rig(tmp_path_factory.mktemp("shared"))) as one:
        yield one


@pytest.fixture(scope="session")
def executor(shared: Rig) -> Executor:
    """A quick stub executor; still, no first token of it comes within a millisecond."""
    return shared.executor(max_num_seqs=64, step_ms=4)


@pytest.fixture(scope="session")
def open_ingress(shared: Rig, executor: Executor) -> Ingress:
    """An open ingress with a few contracts."""
    return shared.ingress(
        [executor],
        [
            contract("gold", tier="Gold"),
            contract("impossible", objectives={"TTFT": 1}),
            contract("calm", tier="Bronze"),
            contract("degrading", objectives={"TTFT": 1}, onInfeasible="Degrade"),
            contract(
                "falling", objectives={"TTFT": 1}, onInfeasible="Fallback", fallbackRef={"name": "calm"}
            ),
        ],
    )


Script = Callable[[work_pb2.Submit], Awaitable[list[sidecar_pb2.FromSidecar]] | list[sidecar_pb2.FromSidecar]]


class ScriptedSidecar(sidecar_pb2_grpc.SidecarServicer):
    """A sidecar that does exactly what a test says, and remembers what it was told."""

    def __init__(self, name: str, script: Script) -> None:
        self.name = name
        self.script = script
        self.submits: list[work_pb2.Submit] = []
        self.cancels: list[work_pb2.Cancel] = []
        self.peers: list[sidecar_pb2.PeerList] = []
        self.checkpoint_peers: list[str] = []
        self.backlog_ms = 0.0
        self.out: asyncio.Queue[sidecar_pb2.FromSidecar | None] = asyncio.Queue()

    async def Serve(self, requests: Any, _context: Any) -> AsyncIterator[sidecar_pb2.FromSidecar]:  # noqa: N802
        engine = engine_pb2.EngineInfo(
            type=engine_pb2.ENGINE_TYPE_STUB, model=MODEL, max_model_len=2048, max_num_batched_tokens=1024
        )
        yield sidecar_pb2.FromSidecar(info=sidecar_pb2.ExecutorInfo(executor=self.name, engine=engine))
        yield self._load()
        tasks = [asyncio.create_task(self._listen(requests)), asyncio.create_task(self._report())]
        try:
            while (message := await self.out.get()) is not None:
                yield message
        finally:
            for task in tasks:
                task.cancel()

    def _load(self) -> sidecar_pb2.FromSidecar:
        load = sidecar_pb2.LoadReport(serving=True, step_model=[1, 0, 0, 0, 0], residual_quantile=1)
        load.backlog_ms = self.backlog_ms
        load.checkpoint_peers.extend(self.checkpoint_peers)
        return sidecar_pb2.FromSidecar(load=load)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.out.put_nowait(self._load())

    async def _listen(self, requests: Any) -> None:
        async for message in requests:
            self.cancels += message.cancels
            if message.HasField("peers"):
                self.peers.append(message.peers)
            for submit in message.submits:
                self.submits.append(submit)
                answer = self.script(submit)
                if asyncio.iscoroutine(answer):
                    answer = await answer
                for one in answer:
                    self.out.put_nowait(one)


def admitted(submit: work_pb2.Submit, *outputs: work_pb2.Output) -> list[sidecar_pb2.FromSidecar]:
    """Yes, and then these outputs, each in a frame of its own."""
    decision = sidecar_pb2.Decision(
        request_id=submit.request_id,
        attempt=submit.attempt,
        admitted=True,
        prediction=sidecar_pb2.Prediction(ttft_ms=12.5, itl_ms=2, e2e_ms=80, slack_ms=30),
        prompt_tokens=7,
    )
    messages = [sidecar_pb2.FromSidecar(decisions=[decision])]
    for output in outputs:
        output.request_id, output.attempt = submit.request_id, output.attempt or submit.attempt
        messages.append(sidecar_pb2.FromSidecar(frame=work_pb2.Frame(outputs=[output])))
    return messages


def declined(submit: work_pb2.Submit, code: str, **fields: Any) -> list[sidecar_pb2.FromSidecar]:
    """No, and why."""
    refusal = sidecar_pb2.Refusal(**fields)
    refusal.error.code, refusal.error.message = code, f"because of {code}"
    decision = sidecar_pb2.Decision(request_id=submit.request_id, attempt=submit.attempt, refusal=refusal)
    return [sidecar_pb2.FromSidecar(decisions=[decision])]


@pytest.fixture
async def scripted(
    tmp_path: Path,
) -> AsyncIterator[Callable[..., Awaitable[tuple[ScriptedSidecar, Executor]]]]:
    """Starts scripted sidecars in the test's own event loop."""
    servers: list[tuple[grpc.aio.Server, ScriptedSidecar]] = []

    async def start(script: Script) -> tuple[ScriptedSidecar, Executor]:
        name = f"scripted{len(servers)}"
        servicer = ScriptedSidecar(name, script)
        server = grpc.aio.server()
        sidecar_pb2_grpc.add_SidecarServicer_to_server(servicer, server)
        address = f"unix:{tmp_path / name}.grpc"
        server.add_insecure_port(address)
        await server.start()
        servers.append((server, servicer))
        return servicer, Executor(name, address)

    yield start
    for server, servicer in servers:
        servicer.out.put_nowait(None)
        await server.stop(0.2)


@pytest.fixture(scope="session")
def kit() -> Any:
    """This module: builders of contracts, bodies and scripted answers, and `until`."""
    return sys.modules[__name__]
