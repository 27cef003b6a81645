"""Checkpoints on real engines: KV of an engine that was killed is loaded by another, not computed again."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from superinfer_proto.slab import Counter, Slab

pytestmark = pytest.mark.vllm

BLOCK = 32
PROMPT = "The harbour lay still under a low moon while the boats came home. " * 6
SAMPLED = {"temperature": 0.8, "seed": 11, "presence_penalty": 0.4, "ignore_eos": True}


def document(**more: Any) -> dict[str, Any]:
    return {"prompt": PROMPT, "max_tokens": 200, "stream": True, **SAMPLED, **more}


def checkpointing(wire: SimpleNamespace, directory: Path, model: Path, *options: str) -> Any:
    shared = directory / "shared"
    ours = (
        "--checkpoint-dir",
        str(shared),
        *("--checkpoint-orphan-s", "600", "--checkpoint-memory-mib", "64"),
    )
    engine = wire.EngineProcess(directory, model, *ours, *options)
    engine.shared = shared
    return engine


def counted(engine: Any, counter: Counter) -> int:
    slab = Slab.open(engine.shared / "engine.slab")
    try:
        return slab.counted(counter)
    finally:
        slab.close()


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("restore")


@pytest.fixture
def engines(wire: SimpleNamespace, tiny_model: Path, directory: Path) -> Iterator[Any]:
    """A factory of engines that are ended with the test."""
    made: list[Any] = []

    def make(name: str, *options: str) -> Any:
        engine = checkpointing(wire, directory / name, tiny_model, *options)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.process.send_signal(signal.SIGKILL)
        engine.process.wait(30)


async def cut(wire: SimpleNamespace, engine: Any, submit: Any, tokens: int) -> Any:
    """Kill the engine without warning once so many tokens were delivered; what was delivered."""
    async with wire.connect(engine) as connection:
        await connection.send(submit)
        key = (submit.request_id, submit.attempt)
        while key not in connection.answers or len(connection.answers[key].tokens()) < tokens:
            await connection.frame()
        engine.process.send_signal(signal.SIGKILL)
        engine.process.wait(30)
        return connection.answers[key]


async def store_beside(engine: Any) -> Slab:
    """A sidecar's store that the engine has found, empty."""
    saved = Slab.open(engine.shared / "engine.slab")
    store = Slab.adopt(engine.shared / "store.slab", saved.shape, generation=1)
    saved.close()
    pids = [engine.process.pid, *engine.core_pids()]
    async with asyncio.timeout(60):
        while not any("store.slab" in Path(f"/proc/{pid}/maps").read_text() for pid in pids):
            await asyncio.sleep(0.05)
    return store


def restore(dead: Any, store: Slab) -> None:
    """What sidecars do over the network: every block of the dead engine's slab into the store."""
    saved = Slab.open(dead.shared / "engine.slab")
    for slot, header in saved.scan():
        store.payload(slot)[:] = saved.payload(slot)
        store.publish(slot, header.block_hash, header.seal, header.stream, header.ordinal)
    saved.close()


async def resumed_by_its_successor(
    wire: SimpleNamespace, engines: Any, resumed: Any, tokens: list[int], whole: Any
) -> None:
    """An engine that starts where one was killed finds its blocks: its sidecar need not even be there."""
    successor = engines("a")
    successor.wait_ready()
    before = counted(successor, Counter.LOADED_BLOCKS)
    async with wire.connect(successor) as connection:
        rest = await connection.ask_one(resumed)
    assert tokens + rest.tokens()[-(200 - len(tokens)) :] == whole.tokens()
    assert counted(successor, Counter.LOADED_BLOCKS) > before


async def test_another_engine_goes_on_with_the_killed_ones_blocks(
    wire: SimpleNamespace, engines: Any
) -> None:
    first, second = engines("a"), engines("b")
    for engine in (first, second):
        engine.wait_ready()
    store = await store_beside(second)
    request_id = wire.new_id()
    async with wire.connect(second) as connection:
        whole = await connection.ask_one(
            wire.submit("reference", wire.COMPLETIONS, document(), cache_salt="reference")
        )
    begun = await cut(wire, first, wire.submit(request_id, wire.COMPLETIONS, document(), cache_salt="s"), 100)
    restore(first, store)
    before = counted(second, Counter.LOADED_BLOCKS)
    async with wire.connect(second) as connection:
        resumed = wire.submit(
            request_id,
            wire.COMPLETIONS,
            document(),
            attempt=2,
            cache_salt="s",
            delivered=wire.delivered_of(begun.outputs),
        )
        rest = await connection.ask_one(resumed)
    tokens = begun.tokens()
    assert tokens + rest.tokens()[-(200 - len(tokens)) :] == whole.tokens()
    await resumed_by_its_successor(wire, engines, resumed, tokens, whole)
    known = rest.final.usage.prompt_tokens + len(tokens)
    loaded = counted(second, Counter.LOADED_BLOCKS) - before
    assert loaded >= known // BLOCK - 1, "all full blocks but the one of the step that was killed"
