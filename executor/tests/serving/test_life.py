"""How an executor process ends: with its work done, with its engine, and never leaving the engine behind.

Ends the engines of the other tests, so these come last (see conftest).
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from superinfer_executor.engine.core_process import watch_processes

LONG = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "stream": True}


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}


def wait_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "left behind"
        time.sleep(0.02)


@pytest.mark.vllm
async def test_sigterm_finishes_what_runs_and_refuses_what_comes(last_engines: Any, wire: Any) -> None:
    engine = last_engines[0]
    cores = engine.core_pids()
    async with wire.connect(engine) as sidecar:
        running, late = wire.new_id(), wire.new_id()
        await sidecar.send(wire.submit(running, wire.COMPLETIONS, {**LONG, "max_tokens": 300}))
        while (running, 1) not in sidecar.answers:
            await sidecar.frame()
        engine.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.05)
        await sidecar.send(wire.submit(late, wire.COMPLETIONS, {**LONG, "max_tokens": 5}))
        finished, refused = await sidecar.until_final((running, 1), (late, 1))
    assert len(finished.tokens()) == 300
    assert finished.final.finish_reason == "length"
    assert refused.final.error.code == "shutting_down"
    assert await asyncio.to_thread(engine.process.wait, 30) == 0
    await asyncio.to_thread(wait_gone, cores)
    assert not engine.socket.exists()
    assert [event["event"] for event in engine.events()][-2:] == ["ready", "stopped"]


@pytest.mark.vllm
async def test_a_dead_engine_core_is_told_and_ends_the_process(last_engines: Any, wire: Any) -> None:
    engine = last_engines[1]
    cores = engine.core_pids()
    async with wire.connect(engine) as sidecar:
        await sidecar.send(wire.submit(cut := wire.new_id(), wire.COMPLETIONS, {**LONG, "max_tokens": 900}))
        while (cut, 1) not in sidecar.answers:
            await sidecar.frame()
        for pid in cores:
            if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
        with suppress(grpc.aio.AioRpcError):
            (answer,) = await sidecar.until_final((cut, 1))
            assert answer.final.error.code == "engine_failed"
    assert await asyncio.to_thread(engine.process.wait, 30) == 1
    await asyncio.to_thread(wait_gone, cores)


PARENT = """
import os, time
from superinfer_executor.engine.core_process import die_with_parent
parent = os.getpid()
if os.fork() == 0:
    die_with_parent(parent)
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


def test_a_killed_executor_takes_its_engine_core_along() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    wait_gone([child])


async def test_the_end_of_a_watched_process_is_told_at_once_and_only_its_own() -> None:
    ended: list[int] = []
    told = asyncio.Event()
    processes = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]

    def on_end(pid: int) -> None:
        ended.append(pid)
        told.set()
        stop()

    stop = watch_processes([process.pid for process in processes], on_end)
    try:
        processes[0].kill()
        async with asyncio.timeout(30):
            await told.wait()
        assert ended == [processes[0].pid]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


async def test_a_process_that_has_ended_before_is_told_too() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    watch_processes([process.pid], told.set_result)
    async with asyncio.timeout(30):
        assert await told == process.pid
