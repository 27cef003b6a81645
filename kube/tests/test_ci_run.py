"""What a run of CI leaves behind on the machine, however it ends; make, docker and dockerd are stand-ins."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STANDINS = {
    "docker": """
case "$1" in
  info) [ -e "$STATE/docker" ] ;;
  ps) [ ! -e "$STATE/cluster" ] || echo 1234 ;;
esac
""",
    "make": """
echo "make $*" >> "$STATE/calls"
case "$1" in
  e2e)
    if [ ! -e "$STATE/docker" ]; then
      touch "$STATE/docker"
      (trap 'rm -f "$STATE/docker"; kill $!; exit 0' TERM; sleep 600 & wait) </dev/null >/dev/null 2>&1 &
      echo $! > "$DOCKER_PIDFILE"
    fi
    touch "$STATE/cluster"
    ;;
  cluster-down) rm -f "$STATE/cluster" ;;
esac
echo "== 3 passed of $1 in 1.0s =="
if [ "$1" = "$HANGS" ]; then
  echo $$ > "$STATE/hanging.part" && mv "$STATE/hanging.part" "$STATE/hanging"
  sleep 600
fi
[ "$1" != "$FAILS" ]
""",
}


class Machine:
    """Where CI runs."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        tools = folder / "bin"
        tools.mkdir()
        for name, text in STANDINS.items():
            (tools / name).write_text(f"#!/bin/bash\n{text}")
            (tools / name).chmod(0o755)
        self.environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "STATE": str(self.state),
            "DOCKER_PIDFILE": str(self.state / "pid"),
            "TMPDIR": str(folder),
            "FAILS": "",
            "HANGS": "",
        }

    def has(self, name: str) -> bool:
        return (self.state / name).exists()

    def start(self, **changes: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [ROOT / ".ci" / "run"],
            env=self.environment | changes,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def is_running(pid: int) -> bool:
    """What ended is only waiting for somebody to take note of it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "State:\tZ" not in status


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("fails", "code"),
    [
        pytest.param("", 0, id="all is well"),
        pytest.param("verify-gen", 1, id="lint fails"),
        pytest.param("e2e", 1, id="the end-to-end suite fails"),
        pytest.param("test", 1, id="the tests fail"),
    ],
)
def test_neither_cluster_nor_engine_is_left_and_failures_are_told(machine, fails, code):
    run = machine.start(FAILS=fails)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == code, said
    assert (machine.has("cluster"), machine.has("docker")) == (False, False)
    if fails != "verify-gen":
        assert said.rstrip().splitlines()[-2:] == [
            "end to end: == 3 passed of e2e in 1.0s ==",
            "== 3 passed of test in 1.0s ==",
        ]


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("hangs", ["e2e", "test"])
def test_a_run_that_is_stopped_takes_everything_with_it(machine, hangs, signum, code):
    run = machine.start(HANGS=hangs)
    while not machine.has("hanging"):
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.05)
    run.send_signal(signum)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == code, said
    assert (machine.has("cluster"), machine.has("docker")) == (False, False)
    assert not is_running(int((machine.state / "hanging").read_text())), "a command goes on"


def test_what_was_there_before_is_still_there(machine):
    for name in ("docker", "cluster"):
        (machine.state / name).touch()
    run = machine.start(FAILS="e2e")
    run.communicate(timeout=60)
    assert run.returncode == 1
    assert (machine.has("cluster"), machine.has("docker")) == (True, True)
