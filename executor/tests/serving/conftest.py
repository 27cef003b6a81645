"""Two real engines on the tiny model, started once, and a client that speaks Engine/Run as a sidecar does."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from superinfer_executor.models.tiny import prepare_tiny
from superinfer_proto.v1 import engine_pb2, engine_pb2_grpc, slo_pb2, work_pb2

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MODEL = "tiny"
CREATED_S = 1_700_000_000
START_S, ANSWER_S = 240, 60

VLLM_ARGS = (
    *("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8", "--block-size", "32"),
    *("--max-num-batched-tokens", "256", "--enforce-eager"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)


class EngineProcess:
    """`python -m superinfer_executor serve`, as the supervisor runs it."""

    def __init__(self, directory: Path, model: Path, *options: str, vllm_args: Sequence[str] = VLLM_ARGS):
        directory.mkdir(parents=True, exist_ok=True)
        self.socket = directory / "engine.sock"
        self._out, self._err = directory / "stdout", directory / "stderr"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        ours = ["--socket", str(self.socket), "--model", str(model), "--served-model-name", MODEL, *options]
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "superinfer_executor", "serve", *ours, "--", *vllm_args],
                stdout=out,
                stderr=err,
                env=environment,
            )

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.read_text().splitlines()]

    def errors(self) -> str:
        return self._err.read_text()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if any(event["event"] == "ready" for event in self.events()):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        pytest.fail(f"the engine did not start:\n{self.errors()[-4000:]}")

    def core_pids(self) -> list[int]:
        """Every process below this one."""
        children: dict[int, list[int]] = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, rest = status.read_text().split(" (", 1)
            except OSError:
                continue
            children.setdefault(int(rest.rpartition(") ")[2].split()[1]), []).append(int(pid))
        found, waiting = [], [self.process.pid]
        while waiting:
            below = children.get(waiting.pop(), [])
            found += below
            waiting += below
        return found

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@dataclass
class Answer:
    """Everything one attempt said."""

    outputs: list[work_pb2.Output] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)

    @property
    def final(self) -> work_pb2.Output:
        return self.outputs[-1]

    @property
    def body(self) -> bytes:
        return b"".join(output.chunk for output in self.outputs)

    def tokens(self, choice: int = 0) -> list[int]:
        return [t for output in self.outputs if output.choice == choice for t in output.token_ids]

    def all_tokens(self) -> dict[int, list[int]]:
        return {choice: self.tokens(choice) for choice in sorted({o.choice for o in self.outputs})}

    def finish_reasons(self) -> dict[int, tuple[str, str]]:
        return {o.choice: (o.finish_reason, o.stop_reason) for o in self.outputs if o.finish_reason}


def submit(
    request_id: str, path: str, document: Mapping[str, Any] | bytes, *, attempt: int = 1, **more: Any
) -> work_pb2.Submit:
    body = document if isinstance(document, bytes) else json.dumps({"model": MODEL, **document}).encode()
    slo = slo_pb2.RequestSlo(
        contract="shop/chat",
        tier=slo_pb2.TIER_GOLD,
        ttft_target_ms=60_000,
        contract_holds=True,
        budget_left=1,
    )
    fields = {"slo": slo, "created_s": CREATED_S, **more}
    return work_pb2.Submit(request_id=request_id, attempt=attempt, path=path, body=body, **fields)


class Wire:
    """A sidecar's end of one Run stream."""

    def __init__(self, call: Any, info: engine_pb2.EngineInfo) -> None:
        self._call = call
        self.info = info
        self.frames: list[work_pb2.Frame] = []
        self.answers: dict[tuple[str, int], Answer] = {}

    async def send(self, *submits: work_pb2.Submit, cancels: Sequence[work_pb2.Cancel] = ()) -> None:
        await self._call.write(engine_pb2.ToEngine(submits=submits, cancels=cancels))

    async def frame(self) -> work_pb2.Frame:
        async with asyncio.timeout(ANSWER_S):
            message = await self._call.read()
        assert message is not grpc.aio.EOF, "the engine closed the stream"
        self.frames.append(message.frame)
        for output in message.frame.outputs:
            answer = self.answers.setdefault((output.request_id, output.attempt), Answer())
            answer.outputs.append(output)
            answer.frames.append(message.frame.step)
        return message.frame

    async def until_final(self, *keys: tuple[str, int]) -> list[Answer]:
        def missing() -> bool:
            return any(key not in self.answers or not self.answers[key].final.final for key in keys)

        while missing():
            await self.frame()
        return [self.answers[key] for key in keys]

    async def ask(self, *submits: work_pb2.Submit) -> list[Answer]:
        await self.send(*submits)
        return await self.until_final(*((each.request_id, each.attempt) for each in submits))

    async def ask_one(self, one: work_pb2.Submit) -> Answer:
        (answer,) = await self.ask(one)
        return answer


@asynccontextmanager
async def connect(engine: EngineProcess) -> AsyncIterator[Wire]:
    options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
    async with grpc.aio.insecure_channel(f"unix:{engine.socket}", options=options) as channel:
        call = engine_pb2_grpc.EngineStub(channel).Run()
        first = await call.read()
        yield Wire(call, first.info)
        call.cancel()


async def render(engine: EngineProcess, *requests: engine_pb2.RenderRequest) -> list[engine_pb2.Rendered]:
    options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
    async with grpc.aio.insecure_channel(f"unix:{engine.socket}", options=options) as channel:
        call = engine_pb2_grpc.EngineStub(channel).Render()
        await call.write(engine_pb2.RenderBatch(requests=requests))
        found: dict[str, engine_pb2.Rendered] = {}
        while len(found) < len(requests):
            batch = await call.read()
            found |= {each.request_id: each for each in batch.rendered}
        call.cancel()
    return [found[each.request_id] for each in requests]


def events_of(body: bytes) -> list[Any]:
    """Parsed SSE events; [DONE] stays text."""
    found = []
    for event in body.decode().split("\n\n")[:-1]:
        assert event.startswith("data: "), event
        found.append("[DONE]" if event == "data: [DONE]" else json.loads(event.removeprefix("data: ")))
    return found


def delivered_of(outputs: Sequence[work_pb2.Output]) -> list[slo_pb2.TokenGroup]:
    """What the ingress' ledger gives back: groups choice by choice."""
    groups = [
        slo_pb2.TokenGroup(
            choice=output.choice,
            first_token=output.first_token,
            token_ids=output.token_ids,
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
        )
        for output in outputs
        if output.token_ids
    ]
    return sorted(groups, key=lambda group: group.choice)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def two_engines(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[EngineProcess, EngineProcess]]:
    if running := os.environ.get("SUPERINFER_TEST_ENGINES"):  # while developing: two that stay up
        yield tuple(SimpleNamespace(socket=Path(running, name, "engine.sock")) for name in "ab")
        return
    directory = tmp_path_factory.mktemp("engines")
    engines = EngineProcess(directory / "a", tiny_model), EngineProcess(directory / "b", tiny_model)
    try:
        for engine in engines:
            engine.wait_ready()
        yield engines
    finally:
        for engine in engines:
            engine.stop()


@pytest.fixture
def last_engines(two_engines: tuple[EngineProcess, EngineProcess]) -> tuple[EngineProcess, EngineProcess]:
    """The same engines, for tests that end them."""
    if os.environ.get("SUPERINFER_TEST_ENGINES"):
        pytest.skip("engines that stay up")
    return two_engines


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever ends engines comes after everybody who needs them."""
    items.sort(key=lambda item: "last_engines" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def engine(two_engines: tuple[EngineProcess, EngineProcess]) -> EngineProcess:
    return two_engines[0]


@pytest.fixture(scope="session")
def wire() -> SimpleNamespace:
    """The client's functions: test modules cannot import a conftest in importlib mode."""
    return SimpleNamespace(
        CHAT=CHAT,
        COMPLETIONS=COMPLETIONS,
        MODEL=MODEL,
        CREATED_S=CREATED_S,
        EngineProcess=EngineProcess,
        connect=connect,
        render=render,
        submit=submit,
        events_of=events_of,
        delivered_of=delivered_of,
        new_id=lambda: uuid.uuid4().hex,
    )
