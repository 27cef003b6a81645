"""Executors without a model: a stub engine, a writer that saves blocks as an engine would, and a sidecar."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from superinfer_core.checkpoint.peers import PeerPolicy
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_executor.stub.service import StubEngine, start_server
from superinfer_executor.stub.settings import StubSettings
from superinfer_proto.slab import Happened, Slab, SlabShape, seal_of, stream_of
from superinfer_proto.v1 import checkpoint_pb2_grpc, sidecar_pb2, sidecar_pb2_grpc, work_pb2
from superinfer_sidecar.checkpoint.settings import CheckpointSettings
from superinfer_sidecar.planner import Planner
from superinfer_sidecar.service import Sidecar
from superinfer_sidecar.settings import SidecarSettings

PATIENCE_S = 20.0
LAYOUT = "layout-of-the-tests"
PAYLOAD_BYTES = 5000


def hash_of(*words: object) -> bytes:
    return hashlib.sha256("/".join(map(str, words)).encode()).digest()


def payload_of(block_hash: bytes) -> bytes:
    return (block_hash * (PAYLOAD_BYTES // len(block_hash) + 1))[:PAYLOAD_BYTES]


class Writer:
    """Saves blocks as the engine's connector does."""

    def __init__(self, path: Path, *, layout: str = LAYOUT, slots: int = 64) -> None:
        self.slab = Slab.adopt(path, SlabShape(layout, PAYLOAD_BYTES, slots), generation=1)
        self._next = 0

    def save(
        self, request_id: str, ordinal: int, *, salt: str = "", choice: int = 0, tail_tokens: int = 0
    ) -> bytes:
        """One block of a request; the same request and salt give the same content."""
        block_hash = hash_of(salt, request_id, ordinal)
        slot = self._next % self.slab.shape.slots
        self._next += 1
        self.slab.clear(slot)
        payload = payload_of(block_hash)
        self.slab.payload(slot)[:] = payload
        seal = seal_of(self.slab.shape.layout, block_hash, payload)
        stream = stream_of(request_id, choice)
        self.slab.publish(slot, block_hash, seal, stream, ordinal, tail_tokens=tail_tokens)
        return block_hash

    def refer(self, request_id: str, ordinal: int, block_hash: bytes) -> None:
        """Another request needs a block that is there."""
        for slot, header in self.slab.scan():
            if header.block_hash == block_hash:
                self.slab.note(
                    Happened.REFERENCED,
                    stream_of(request_id, 0),
                    slot=slot,
                    slot_sequence=header.sequence,
                    ordinal=ordinal,
                )

    def die(self) -> None:
        """As a killed engine: the lock is let go of, the file stays."""
        self.slab.close()


async def until(condition: Callable[[], Any], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        pytest.fail(f"waited in vain for {what}")


@dataclass
class Executor:
    """One stub engine with a sidecar that keeps checkpoints, and the ingress' stream to it."""

    name: str
    folder: Path
    shared: Path
    writer: Writer
    engine: StubEngine
    engine_server: Any
    sidecar: Sidecar
    call: Any = None
    channel: Any = None
    decisions: list[sidecar_pb2.Decision] = field(default_factory=list)
    outputs: list[work_pb2.Output] = field(default_factory=list)
    loads: list[sidecar_pb2.LoadReport] = field(default_factory=list)
    reading: Any = None

    @property
    def address(self) -> str:
        return f"unix:{self.folder}/sidecar.sock"

    @property
    def unit(self) -> Any:
        return self.sidecar.checkpoints

    @property
    def counters(self) -> Any:
        return self.unit.counters

    async def connect(self) -> None:
        self.channel = grpc.aio.insecure_channel(self.address)
        self.call = sidecar_pb2_grpc.SidecarStub(self.channel).Serve()
        await self.call.write(sidecar_pb2.ToSidecar(hello=sidecar_pb2.Hello(ingress_id="test")))
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while (message := await self.call.read()) is not grpc.aio.EOF:
            self.decisions.extend(message.decisions)
            if message.HasField("load"):
                self.loads.append(message.load)
            self.outputs.extend(message.frame.outputs)

    async def know(self, *executors: "Executor", domains: dict[str, list[str]] | None = None) -> None:
        """What the ingress would say of the pool."""
        peers = [
            sidecar_pb2.Peer(
                executor=each.name, address=each.address, fault_domain=(domains or {}).get(each.name, ())
            )
            for each in executors
        ]
        await self.call.write(sidecar_pb2.ToSidecar(peers=sidecar_pb2.PeerList(peers=peers)))

    async def submit(self, submit: work_pb2.Submit) -> None:
        await self.call.write(sidecar_pb2.ToSidecar(submits=[submit]))

    async def final(self, request_id: str) -> work_pb2.Output:
        def finals() -> list[work_pb2.Output]:
            return [o for o in self.outputs if o.final and o.request_id == request_id]

        await until(finals, f"the end of {request_id}")
        return finals()[0]

    def stub(self) -> Any:
        """A client of its Checkpoint service."""
        return checkpoint_pb2_grpc.CheckpointStub(self.channel)

    async def close(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            await asyncio.gather(self.reading, return_exceptions=True)
            self.call.cancel()
            await self.channel.close()
        await self.sidecar.drain()
        await self.engine_server.stop(grace=0)


class Pool:
    """Starts executors and ends them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.executors: list[Executor] = []

    async def start(
        self,
        name: str,
        *,
        layout: str = LAYOUT,
        slots: int = 64,
        stub: dict[str, Any] | None = None,
        **more: Any,
    ) -> Executor:
        folder = self._folder / name
        folder.mkdir()
        shared = folder / "shared"
        sidecar_settings = more.pop("sidecar", {})
        engine_settings = StubSettings(socket=folder / "engine.sock", **(stub or {}))
        engine = StubEngine(engine_settings)
        server = await start_server(engine, engine_settings)
        checkpoint = CheckpointSettings(
            shared,
            memory_bytes=64 * (PAYLOAD_BYTES + 8192),
            interval_ms=2.0,
            policy=PeerPolicy.ANY,
            orphan_s=30.0,
        )
        settings = SidecarSettings(
            listen=f"unix:{folder}/sidecar.sock",
            engine_socket=folder / "engine.sock",
            executor_name=name,
            grace_s=5.0,
            checkpoint=replace(checkpoint, **more),
        )
        writer = Writer(shared / "engine.slab", layout=layout, slots=slots)
        sidecar = Sidecar(replace(settings, **sidecar_settings), Planner(SchedulingPolicy(), None))
        await sidecar.start()
        executor = Executor(name, folder, shared, writer, engine, server, sidecar)
        self.executors.append(executor)
        await until(lambda: sidecar.ready and executor.unit.store.slab is not None, "the sidecar to be ready")
        if not sidecar_settings:
            await executor.connect()
        return executor

    async def close(self) -> None:
        for executor in self.executors:
            await executor.close()


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    made = Pool(tmp_path)
    yield made
    await made.close()


@pytest.fixture
def tools() -> Any:
    """Functions of this file: test modules cannot import a conftest in importlib mode."""

    class Tools:
        until = staticmethod(until)
        hash_of = staticmethod(hash_of)
        payload_of = staticmethod(payload_of)
        seal_of = staticmethod(seal_of)
        stream_of = staticmethod(stream_of)
        Writer = Writer
        layout = LAYOUT
        payload_bytes = PAYLOAD_BYTES

    return Tools
