"""Processes of `superinfer serve`: restarted when they crash, stopped in order, never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from superinfer.serving.backoff import Backoff
from superinfer.serving.process import EventKind, ProcessEvent, ProcessSpec, Role
from superinfer.serving.supervisor import Supervisor, log_tail

FAKE = Path(__file__).with_name("fake_process.py")
QUICK = Backoff(first_s=0.01, most_s=0.05)


def spec(
    scratch: Path, behaviour: str, name: str = "engine", role: Role = Role.EXECUTOR, grace_s: float = 10
) -> ProcessSpec:
    command = (sys.executable, "-S", str(FAKE), behaviour, str(scratch), name)
    return ProcessSpec(name, role, command, dict(os.environ), scratch / f"{name}.log", grace_s)


def pids(scratch: Path) -> list[int]:
    return [int(line) for line in (scratch / "pids").read_text().split()]


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_gone(gone: list[int], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while alive := [pid for pid in gone if running(pid)]:
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.02)


async def test_a_crashed_process_is_started_again_and_becomes_ready(tmp_path: Path) -> None:
    events: list[ProcessEvent] = []
    supervisor = Supervisor([spec(tmp_path, "crash-once")], events.append, backoff=QUICK)
    supervisor.start()
    while supervisor.children[0].restarts == 0:
        await asyncio.sleep(0.01)
    assert await supervisor.wait_ready()
    await supervisor.stop()
    crash = next(event for event in events if event.kind is EventKind.CRASHED)
    assert "SIGSEGV" in crash.detail
    assert len(pids(tmp_path)) == 2
    until_gone(pids(tmp_path))


async def test_a_process_that_never_gets_ready_is_given_up_with_its_last_words(
    tmp_path: Path,
) -> None:
    supervisor = Supervisor([spec(tmp_path, "never-ready")], lambda _: None, backoff=QUICK)
    supervisor.start()
    assert not await supervisor.wait_ready()
    await supervisor.stop()
    assert len(pids(tmp_path)) == QUICK.tries_before_ready
    assert "missing a thing" in log_tail(tmp_path / "engine.log")


async def test_progress_and_plain_output_of_a_process_are_told_apart(tmp_path: Path) -> None:
    events: list[ProcessEvent] = []
    supervisor = Supervisor([spec(tmp_path, "live")], events.append)
    supervisor.start()
    assert await supervisor.wait_ready()
    await supervisor.stop()
    assert [event.detail for event in events if event.kind is EventKind.PROGRESS] == ["loading: half way"]
    assert "a line that is no event" in (tmp_path / "engine.log").read_text()


async def test_the_ingress_stops_first_and_engines_last(tmp_path: Path) -> None:
    roles = {"engine": Role.EXECUTOR, "side": Role.SIDECAR, "front": Role.INGRESS}
    specs = [spec(tmp_path, "live", name, role) for name, role in roles.items()]
    supervisor = Supervisor(specs, lambda _: None)
    supervisor.start()
    assert await supervisor.wait_ready()
    await supervisor.stop()
    assert (tmp_path / "stops").read_text().split() == ["front", "side", "engine"]


async def test_a_process_deaf_to_sigterm_is_ended_after_its_grace_with_its_children(tmp_path: Path) -> None:
    specs = [spec(tmp_path, "deaf", "deaf", grace_s=0.2), spec(tmp_path, "with-child", "parent")]
    supervisor = Supervisor(specs, lambda _: None)
    supervisor.start()
    assert await supervisor.wait_ready()
    assert len(pids(tmp_path)) == 3
    await supervisor.stop()
    until_gone(pids(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux's")
def test_processes_end_when_the_supervisor_is_killed_outright(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from test_supervisor import spec, Supervisor\n"
        "async def main():\n"
        "    s = Supervisor([spec(Path(sys.argv[1]), 'live')], lambda _: None)\n"
        "    s.start(); await s.wait_ready(); print('up', flush=True); await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(FAKE.parent)]
    keeper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "up\n"
        keeper.send_signal(signal.SIGKILL)
        until_gone(pids(tmp_path))
    finally:
        keeper.kill()
        keeper.wait()
        keeper.stdout.close()


def test_waits_double_up_to_a_bound_and_a_healthy_spell_is_forgiven() -> None:
    backoff = Backoff(first_s=0.5, most_s=20)
    assert [backoff.delay_s(n) for n in (1, 2, 3, 10, 10_000)] == [0.5, 1, 2, 20, 20]
    assert backoff.crashes_in_a_row(7, ran_s=60) == 1
    assert backoff.crashes_in_a_row(7, ran_s=1) == 8
    assert not backoff.gives_up(50, returncode=1, ever_ready=True)
    assert backoff.gives_up(1, returncode=2, ever_ready=False)
    assert not backoff.gives_up(1, returncode=1, ever_ready=False)
