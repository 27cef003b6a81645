"""Engines that stop speaking: hung ones end, starved ones are waited for; on real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from superinfer_core.failover.hang import HangPolicy
from superinfer_proto.processes import is_ending
from superinfer_sidecar.service import clock_ms

LONG = 5000


async def test_an_engine_that_hangs_is_given_up(site, submit_of, body_of):
    await site.start_engine(hang_after_steps=3)
    await site.start_sidecar(hang=HangPolicy(floor_ms=200, waiting_ms=200))
    ingress = await site.connect()
    await ingress.send(submit_of("r", body=body_of(LONG)))
    assert (await ingress.final("r")).error.code == "engine_failed"
    assert len(ingress.tokens("r")) == 3


async def test_an_engine_that_is_stopped_is_ended_and_cannot_wake_up(
    site, submit_of, body_of, spawn, wait_until
):
    engine = spawn("superinfer_executor.stub", "--socket", str(site.socket), "--step-ms", "2")
    sidecar = await site.start_sidecar(hang=HangPolicy(floor_ms=300, waiting_ms=300))
    await wait_until(lambda: sidecar.ready, "the engine")
    ingress = await site.connect()
    await ingress.send(submit_of("r", body=body_of(LONG)))
    await wait_until(lambda: ingress.tokens("r"), "the first token")
    engine.send_signal(signal.SIGSTOP)
    assert (await ingress.final("r")).error.code == "engine_failed"
    assert await asyncio.to_thread(engine.wait, 10) == -signal.SIGKILL
    assert sidecar.desk.counters.engine_hangs == 1


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel keeps no schedstat")
async def test_an_engine_without_cpu_is_not_taken_for_one_that_hangs(
    site, submit_of, body_of, spawn, wait_until
):
    engine = spawn("superinfer_executor.stub", "--socket", str(site.socket), "--step-ms", "2")
    sidecar = await site.start_sidecar(hang=HangPolicy(floor_ms=500, waiting_ms=500, young_ms=0))
    await wait_until(lambda: sidecar.ready, "the engine")
    ingress = await site.connect()
    await ingress.send(submit_of("r", body=body_of(LONG)))
    await wait_until(lambda: ingress.tokens("r"), "the first token")
    cpu = {max(os.sched_getaffinity(0))}
    crowd = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        # The engine gets what nobody else wants of a CPU that everybody wants.
        for pid in (engine.pid, *(each.pid for each in crowd)):
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), cpu)
                if pid == engine.pid:
                    os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))
        silent_ms = 0.0
        while silent_ms < 1000:
            silent_ms = max(silent_ms, clock_ms() - sidecar.desk.last_frame_ms)
            assert sidecar.desk.counters.engine_hangs == 0
            await asyncio.sleep(0.02)
    finally:
        for each in crowd:
            each.kill()
            each.wait()
    await asyncio.to_thread(os.sched_setaffinity, engine.pid, os.sched_getaffinity(0))
    said = len(ingress.tokens("r"))
    await wait_until(lambda: len(ingress.tokens("r")) > said, "the engine to go on")
    assert sidecar.desk.counters.engine_hangs == 0
    assert engine.poll() is None


async def test_an_engine_that_ends_is_left_before_its_socket_closes(
    site, submit_of, body_of, spawn, wait_until, monkeypatch
):
    # The kernel shows that a process ends long before it has freed its memory and closed its sockets.
    engine = spawn("superinfer_executor.stub", "--socket", str(site.socket), "--step-ms", "2")
    sidecar = await site.start_sidecar()
    await wait_until(lambda: sidecar.ready, "the engine")
    ingress = await site.connect()
    await ingress.send(submit_of("r", body=body_of(LONG)))
    await wait_until(lambda: ingress.tokens("r"), "the first token")
    monkeypatch.setattr("superinfer_sidecar.service.is_ending", lambda pid: pid == engine.pid)
    assert (await ingress.final("r")).error.code == "engine_failed"
    assert engine.poll() is None
    assert sidecar.desk.counters.engine_hangs == 0


def test_a_process_is_seen_to_end():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not is_ending(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_ending(process.pid)  # a zombie, until somebody asks for its end
    process.communicate()
    assert not is_ending(process.pid)  # nothing to be seen any more
