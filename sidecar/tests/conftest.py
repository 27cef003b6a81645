"""A sidecar over real gRPC in front of the engine stub, and an ingress that remembers what it was told.

Tests here share desk_room.py; import mode importlib adds no directory.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from superinfer_core.prediction.profile import Profile
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_executor.stub.service import StubEngine, start_server
from superinfer_executor.stub.settings import StubSettings
from superinfer_proto.duplex import DuplexCall, open_call
from superinfer_proto.v1 import sidecar_pb2, sidecar_pb2_grpc, slo_pb2, work_pb2
from superinfer_sidecar.planner import Planner
from superinfer_sidecar.service import Sidecar
from superinfer_sidecar.settings import SidecarSettings

sys.path.insert(0, str(Path(__file__).parent))

PATIENCE_S = 20.0
CHAT = "/v1/chat/completions"


def chat_body(tokens: int = 4, *, words: str = "hello", stream: bool = True, **more: Any) -> bytes:
    document = {
        "model": "stub",
        "messages": [{"role": "user", "content": words}],
        "max_tokens": tokens,
        "stream": stream,
        "ignore_eos": True,
        **more,
    }
    return json.dumps(document).encode()


def make_slo(tier: str = "GOLD", **fields: Any) -> slo_pb2.RequestSlo:
    given = {"contract": f"shop/{tier.lower()}", "quantile": 0.9, "contract_holds": True, "budget_left": 1.0}
    return slo_pb2.RequestSlo(tier=slo_pb2.Tier.Value(f"TIER_{tier}"), **{**given, **fields})


def make_submit(request_id: str, **fields: Any) -> work_pb2.Submit:
    given = {
        "attempt": 1,
        "path": CHAT,
        "body": chat_body(),
        "slo": make_slo(),
        "admission": work_pb2.ADMISSION_MODE_ENFORCE,
        "created_s": 1,
    }
    return work_pb2.Submit(request_id=request_id, **{**given, **fields})


def make_profile(**coefficients: float) -> Profile:
    return Profile(
        model="stub",
        engine="stub",
        machine="test",
        dtype="none",
        step_model={"base_ms": 1.0, **coefficients},
        max_num_seqs=4,
        max_step_tokens=1024,
    )


async def until(condition: Callable[[], Any], what: str) -> None:
    """Let the loop run until `condition` holds; what is waited for is in the failure."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        pytest.fail(f"waited in vain for {what}")


class DirectCall:
    """A call as the product's ingress makes it, with the few methods of grpc.aio's that tests use."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        self._call: DuplexCall | None = None

    async def open(self, address: str) -> "DirectCall":
        self._call = await open_call(
            address,
            "/superinfer.v1.Sidecar/Serve",
            tls=None,
            on_message=lambda raw: self._heard.put_nowait(sidecar_pb2.FromSidecar.FromString(raw)),
            on_closed=lambda _why: self._heard.put_nowait(grpc.aio.EOF),
        )
        return self

    async def write(self, message: sidecar_pb2.ToSidecar) -> None:
        self._call.send(message.SerializeToString())

    async def read(self) -> Any:
        return await self._heard.get()

    def cancel(self) -> None:
        self._call.abort()

    def stop_reading(self) -> None:
        self._call._transport.pause_reading()


@dataclass
class Ingress:
    """The ingress' end of one stream."""

    call: Any
    channel: Any
    decisions: dict[tuple[str, int], sidecar_pb2.Decision] = field(default_factory=dict)
    outputs: dict[str, list[work_pb2.Output]] = field(default_factory=lambda: defaultdict(list))
    frames: list[work_pb2.Frame] = field(default_factory=list)
    loads: list[sidecar_pb2.LoadReport] = field(default_factory=list)
    infos: list[sidecar_pb2.ExecutorInfo] = field(default_factory=list)
    ended: bool = False
    task: asyncio.Task[None] | None = None

    async def read_for_ever(self) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.CancelledError):
            while (message := await self.call.read()) is not grpc.aio.EOF:
                for decision in message.decisions:
                    assert (decision.request_id, decision.attempt) not in self.decisions, "decided twice"
                    self.decisions[decision.request_id, decision.attempt] = decision
                if message.HasField("frame"):
                    self.frames.append(message.frame)
                    for output in message.frame.outputs:
                        self.outputs[output.request_id].append(output)
                if message.HasField("load"):
                    self.loads.append(message.load)
                if message.HasField("info"):
                    self.infos.append(message.info)
        self.ended = True

    async def send(self, *submits: work_pb2.Submit, cancel: tuple[str, int] | None = None) -> None:
        message = sidecar_pb2.ToSidecar(submits=submits)
        if cancel is not None:
            message.cancels.add(request_id=cancel[0], attempt=cancel[1])
        await self.call.write(message)

    async def decision(self, request_id: str, attempt: int = 1) -> sidecar_pb2.Decision:
        key = (request_id, attempt)
        await until(lambda: key in self.decisions, f"a decision about {request_id}")
        return self.decisions[key]

    async def final(self, request_id: str, attempt: int | None = None) -> work_pb2.Output:
        def finals() -> list[work_pb2.Output]:
            outputs = self.outputs[request_id]
            return [o for o in outputs if o.final and attempt in (None, o.attempt)]

        await until(finals, f"the end of {request_id}")
        return finals()[0]

    def tokens(self, request_id: str) -> list[int]:
        return [token for output in self.outputs[request_id] for token in output.token_ids]

    async def close(self) -> None:
        self.call.cancel()
        if self.task is not None:
            await self.task
        await self.channel.close()


@dataclass
class Site:
    """Everything one test started."""

    folder: Path
    engine: StubEngine | None = None
    engine_server: Any = None
    sidecar: Sidecar | None = None
    direct: bool = False
    """Whether ingresses speak as the product's own does, or through grpc.aio."""
    ingresses: list[Ingress] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.folder / "engine.sock"

    async def start_engine(self, **settings: Any) -> StubEngine:
        stub = StubSettings(socket=self.socket, **settings)
        self.engine = StubEngine(stub)
        self.engine_server = await start_server(self.engine, stub)
        return self.engine

    async def stop_engine(self) -> None:
        if self.engine_server is not None:
            await self.engine_server.stop(grace=0)
            self.engine_server = None

    async def start_sidecar(
        self, *, policy: SchedulingPolicy | None = None, profile: Profile | None = None, **settings: Any
    ) -> Sidecar:
        base = SidecarSettings(
            listen=f"unix:{self.folder}/sidecar.sock",
            engine_socket=self.socket,
            executor_name="e0",
            grace_s=5.0,
        )
        self.sidecar = Sidecar(replace(base, **settings), Planner(policy or SchedulingPolicy(), profile))
        await self.sidecar.start()
        if self.engine_server is not None:
            await until(lambda: self.sidecar.ready, "the sidecar to find its engine")
        return self.sidecar

    async def connect(self, *, reading: bool = True) -> Ingress:
        channel = grpc.aio.insecure_channel(f"unix:{self.folder}/sidecar.sock")
        if self.direct:
            call: Any = await DirectCall().open(f"unix:{self.folder}/sidecar.sock")
        else:
            call = sidecar_pb2_grpc.SidecarStub(channel).Serve()
        await call.write(sidecar_pb2.ToSidecar(hello=sidecar_pb2.Hello(ingress_id="test")))
        ingress = Ingress(call, channel)
        if self.direct and not reading:
            call.stop_reading()
        if reading:
            ingress.task = asyncio.create_task(ingress.read_for_ever())
            await until(lambda: ingress.infos and ingress.loads, "the greeting")
        self.ingresses.append(ingress)
        return ingress

    async def close(self) -> None:
        for ingress in self.ingresses:
            await ingress.close()
        if self.sidecar is not None:
            await self.sidecar.drain()
        await self.stop_engine()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    yield made
    await made.close()


@pytest.fixture(params=["grpc", "direct"])
def either_wire(request: pytest.FixtureRequest, site: Site) -> None:
    """Both ways in: what is promised holds whoever speaks the wire."""
    site.direct = request.param == "direct"


@pytest.fixture
def wait_until() -> Callable[[Callable[[], Any], str], Awaitable[None]]:
    return until


@pytest.fixture
def submit_of() -> Callable[..., work_pb2.Submit]:
    return make_submit


@pytest.fixture
def slo_of() -> Callable[..., slo_pb2.RequestSlo]:
    return make_slo


@pytest.fixture
def body_of() -> Callable[..., bytes]:
    return chat_body


@pytest.fixture
def profile_of() -> Callable[..., Profile]:
    return make_profile


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process and wait for its ready line."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-m", *args], stdout=subprocess.PIPE, text=True)
        started.append(process)
        process.ready = json.loads(process.stdout.readline())
        assert process.ready["event"] == "ready"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
