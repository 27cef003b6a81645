"""Engines that fall silent: hung ones are ended, starved ones are waited for."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from superinfer_core.failover.hang import HangPolicy, Work
from superinfer_sidecar.engine_watch import EngineWatch, end_engine
from superinfer_sidecar.starvation import Starvation, processes

EVERY_MS = 50.0


class NoCpu:
    """Says that the engine had no CPU for a share of the time since it was made."""

    def __init__(self, clock, share):
        self._clock, self._share, self._since = clock, share, clock()

    def so_far_ms(self):
        return (self._clock() - self._since) * self._share


class Scene:
    """An engine that says nothing from 1000 ms on, looked at every 50 ms."""

    def __init__(self, *, starved_share=0.0, pid=7, young_ms=0.0):
        self.now_ms = 1000.0
        self.watch = EngineWatch(
            HangPolicy(floor_ms=2000, waiting_ms=5000, young_ms=young_ms),
            every_ms=EVERY_MS,
            starvation=lambda _pid: NoCpu(lambda: self.now_ms, starved_share),
        )
        self.watch.on_engine(pid, self.now_ms)

    def hangs_after_ms(self, *, work=Work.MOVING, last_frame_ms=1000.0, until_ms=30_000, blind=()):
        while self.now_ms < until_ms:
            self.now_ms += next((ms for at, ms in blind if at <= self.now_ms < at + 60), EVERY_MS)
            looked = self.watch.hangs(
                self.now_ms, last_frame_ms=last_frame_ms, work=work, longest_step_ms=100, trusted=True
            )
            if looked:
                return self.now_ms - 1000
        return None


@pytest.mark.parametrize(
    ("scene", "more", "least_ms", "most_ms"),
    [
        pytest.param({}, {}, 2000, 2100, id="silent with CPU"),
        pytest.param({"starved_share": 0.5}, {}, 3500, 4100, id="half the CPU: later"),
        pytest.param({"pid": None}, {}, 2000, 2100, id="its process cannot be seen"),
        pytest.param({}, {"work": Work.WAITING}, 5000, 5100, id="nothing has moved yet: later"),
        pytest.param({"young_ms": 60_000}, {}, 5000, 5100, id="it has only just started: later"),
        pytest.param({}, {"blind": [(1500, 3000)]}, 4900, 5200, id="nobody looked meanwhile"),
    ],
)
def test_a_hang_is_seen_when_it_should_be(scene, more, least_ms, most_ms):
    assert least_ms <= Scene(**scene).hangs_after_ms(**more) <= most_ms


@pytest.mark.parametrize(
    ("scene", "more"),
    [
        pytest.param({"starved_share": 1.0}, {}, id="no CPU at all"),
        pytest.param({}, {"work": Work.NONE}, id="nothing to do"),
    ],
)
def test_no_hang_is_seen_where_there_is_none(scene, more):
    assert Scene(**scene).hangs_after_ms(**more) is None


def test_an_engine_that_speaks_again_begins_anew():
    scene = Scene()
    assert scene.hangs_after_ms(until_ms=2900) is None
    assert scene.hangs_after_ms(last_frame_ms=2850, until_ms=4800) is None
    assert scene.hangs_after_ms(last_frame_ms=2850) >= 3850


def spin(code="while True: pass"):
    return subprocess.Popen([sys.executable, "-c", code])


@pytest.fixture
def crowd():
    """More processes that want one CPU than it can serve; all of them on the same one."""
    cpu = {min(os.sched_getaffinity(0))}
    processes = [spin() for _ in range(5)]
    for process in processes:
        os.sched_setaffinity(process.pid, cpu)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel keeps no schedstat")
def test_a_process_without_cpu_is_known_to_be_starved(crowd):
    starved = Starvation(crowd[0].pid)
    began = time.monotonic()
    while starved.so_far_ms() < 500:
        assert time.monotonic() - began < 60, "five processes share a CPU, and none is seen to wait"
        time.sleep(0.05)
    assert starved.so_far_ms() <= (time.monotonic() - began) * 1000 + 50


def test_a_stopped_process_is_not_starved():
    # It does not want a CPU: whoever stopped it made it hang.
    process = spin()
    try:
        process.send_signal(signal.SIGSTOP)
        while "T" not in Path(f"/proc/{process.pid}/stat").read_text().split()[2]:
            time.sleep(0.01)
        starved = Starvation(process.pid)
        time.sleep(0.5)
        assert starved.so_far_ms() < 250
    finally:
        process.kill()
        process.wait()


def test_what_a_process_started_is_looked_at_too():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=0)"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    began = time.monotonic()
    while len(processes(process.pid)) < 2:
        assert time.monotonic() - began < 30
        time.sleep(0.02)
    process.communicate(b"\n")
    assert processes(process.pid) == []
    assert Starvation(process.pid).so_far_ms() == 0


def test_only_our_engines_are_ended():
    process = spin()
    try:
        assert not end_engine(process.pid)
        assert not end_engine(os.getpid())
        assert not end_engine(None)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    engine = spin("import time; time.sleep(600)  # superinfer_executor")
    while b"superinfer" not in Path(f"/proc/{engine.pid}/cmdline").read_bytes():
        time.sleep(0.01)
    assert end_engine(engine.pid)
    assert engine.wait(10) == -signal.SIGKILL
