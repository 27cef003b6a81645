"""Stopping a command before it is where it was going: the exit code shells expect, a word, nothing left."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from superinfer.serving.interrupts import (
    Interrupted,
    StopRequest,
    raising_on_signals,
    stop_on_signals,
    unless_stopped,
)

BOTH = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)

PREPARING = """
import os, subprocess, sys, threading
from pathlib import Path
from superinfer.main import app
from superinfer.serving import models

scratch, number = Path(sys.argv[1]), int(sys.argv[2])
slow = (
    "import signal, sys, time, pathlib;"
    "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[2]).touch(), sys.exit(143)));"
    "print('half way', file=sys.stderr, flush=True);"
    "time.sleep(60)"
)
real = subprocess.Popen

def instead(command, **more):
    process = real([sys.executable, "-c", slow, "x", str(scratch / "cleaned-up")], **more)
    (scratch / "pid").write_text(str(process.pid))
    return process

models.subprocess.Popen = instead
said = []

class Screen:
    def step(self, text):
        if "half way" in text and not said:
            said.append(text)
            os.kill(os.getpid(), number)
    def event(self, event): ...
    def done(self): ...

from superinfer.commands import serve
serve.progress_on = lambda _console: Screen()
app(["serve"], prog_name="superinfer")
"""


@BOTH
def test_a_stop_while_the_model_is_prepared_is_told_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-c", PREPARING, str(tmp_path), str(int(number))]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, done.stderr
    (told,) = done.stderr.splitlines()
    assert "stopped while preparing SmolLM2-135M-Instruct; nothing half-made is kept" in told
    assert "the next start" in told
    assert (tmp_path / "cleaned-up").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@BOTH
async def test_a_stop_ends_the_work_which_cleans_up(number: signal.Signals, code: int) -> None:
    cleaned = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    stop = StopRequest()
    with stop_on_signals(stop), pytest.raises(Interrupted) as interrupted:
        await unless_stopped(work(), stop)
    assert interrupted.value.exit_code == code
    assert cleaned == [True]


async def test_work_that_comes_to_its_end_gives_its_result() -> None:
    async def work() -> int:
        return 7

    assert await unless_stopped(work(), StopRequest()) == 7


async def test_the_first_signal_counts() -> None:
    stop = StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT):
        stop.signalled(number)
    assert stop.interrupted().exit_code == 143


def test_signals_mean_afterwards_what_they_meant_before() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with raising_on_signals(), pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_closed_terminal_does_not_end_what_nohup_started() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raising_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
