"""The processes: an engine and sidecar without checkpoints, one of each with them, and a peer's sidecar.

The peer has no engine of its own: an empty slab of the same layout tells its sidecar what it may store.
Nothing outlives the block.
"""

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from superinfer.serving.shared_memory import SHARED_MEMORY
from superinfer_bench.checkpoint.load import Client
from superinfer_bench.children import Child
from superinfer_bench.stack import BenchFailed, bench_environment
from superinfer_proto.slab import ENGINE_SLAB, Counter, Slab

START_S = 600.0


@dataclass(frozen=True, slots=True)
class EngineShape:
    """What is served."""

    model: Path
    name: str
    block_tokens: int
    max_model_len: int
    max_num_seqs: int
    step_tokens: int
    memory_mib: int

    def vllm_arguments(self) -> tuple[str, ...]:
        """For vLLM's command line."""
        return (
            *("--max-model-len", str(self.max_model_len), "--max-num-seqs", str(self.max_num_seqs)),
            *("--max-num-batched-tokens", str(self.step_tokens)),
            *("--block-size", str(self.block_tokens), "--dtype", "float32"),
        )


@dataclass(frozen=True, slots=True)
class Saved:
    """What an engine has saved, from its slab's own counters."""

    blocks: int
    save_ns: int
    block_bytes: int

    @classmethod
    def of(cls, slab: Slab) -> "Saved":
        """As of now."""
        blocks, spent_ns = slab.counted(Counter.SAVED_BLOCKS), slab.counted(Counter.SAVED_NS)
        return cls(blocks, spent_ns, slab.shape.payload_bytes)

    def since(self, before: "Saved") -> "Saved":
        """What came since."""
        return Saved(self.blocks - before.blocks, self.save_ns - before.save_ns, self.block_bytes)


@dataclass(slots=True)
class Node:
    """One engine behind one sidecar."""

    name: str
    shape: EngineShape
    folder: Path
    shared: Path | None
    engine: Child
    sidecar: Child

    @property
    def address(self) -> str:
        """Of its sidecar."""
        return f"unix:{self.folder}/sidecar.sock"

    def client(self) -> Client:
        """An ingress' stream to it."""
        return Client(self.address, self.shape.name)

    def slab(self) -> Slab:
        """What its engine saves."""
        assert self.shared is not None
        return Slab.open(self.shared / ENGINE_SLAB)

    def rss_mb(self) -> dict[str, float]:
        """Of engine and sidecar, with everything they started."""
        return {child.name.split("-")[0]: _rss_mb(child.pid) for child in (self.engine, self.sidecar)}

    def check(self) -> None:
        """Raise BenchFailed if anything died."""
        self.engine.check()
        self.sidecar.check()


@contextlib.contextmanager
def shared_folder(name: str) -> Iterator[Path]:
    """A folder of shared memory, gone with the block."""
    folder = SHARED_MEMORY / f"superinfer-bench-{name.removeprefix('superinfer-bench-')}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def node(name: str, shape: EngineShape, folder: Path, shared: Path | None) -> AsyncIterator[Node]:
    """Start an engine and its sidecar; with a folder of shared memory they keep checkpoints."""
    ours = ["--socket", str(folder / "engine.sock"), "--model", str(shape.model)]
    ours += ["--served-model-name", shape.name]
    if shared is not None:
        ours += ["--checkpoint-dir", str(shared), "--checkpoint-memory-mib", str(shape.memory_mib)]
    command = [sys.executable, "-m", "superinfer_executor", "serve", *ours, "--", *shape.vllm_arguments()]
    env = bench_environment()
    with (
        Child(f"engine-{name}", command, env, folder / "engine.log") as engine,
        sidecar(name, folder, shared, shape.memory_mib) as beside,
    ):
        made = Node(name, shape, folder, shared, engine, beside)
        yield made
        made.check()


def sidecar(name: str, folder: Path, shared: Path | None, memory_mib: int) -> Child:
    """A sidecar; not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "superinfer_sidecar", "--listen", f"unix:{folder}/sidecar.sock"]
    command += ["--engine-socket", str(folder / "engine.sock"), "--executor-name", name]
    command += ["--admission", "skip"]
    if shared is not None:
        command += ["--checkpoint-dir", str(shared), "--checkpoint-peers", "Any"]
        command += ["--checkpoint-store-mib", str(memory_mib)]
    return Child(f"sidecar-{name}", command, bench_environment(), folder / "sidecar.log")


async def wait_for(nodes: Sequence[Node]) -> None:
    """Until every engine has made its socket."""
    deadline_s = time.monotonic() + START_S
    while not all((each.folder / "engine.sock").exists() for each in nodes):
        for each in nodes:
            each.check()
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"the engines did not start within {START_S:g} s")
        await asyncio.sleep(0.5)


def cpu_s(children: Iterable[Child]) -> float:
    """CPU time that these processes, and all they started, have had."""
    total = 0.0
    for child in children:
        process = psutil.Process(child.pid)
        for each in (process, *process.children(recursive=True)):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def _rss_mb(pid: int) -> float:
    process = psutil.Process(pid)
    found = [process, *process.children(recursive=True)]
    return round(sum(each.memory_info().rss for each in found) / 1e6, 1)
