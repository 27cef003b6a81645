"""The command before and after its work: its version, Ctrl-C while it loads, what a failed start leaves."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from superinfer.output import errors
from superinfer.serving.console import progress_on
from superinfer.serving.interrupts import StopRequest
from superinfer.serving.options import ServeOptions
from superinfer.serving.ports import free_port
from superinfer.serving.session import clear, serving

Run = Callable[..., Any]

INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "superinfer.commands.serve":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
import superinfer.main
"""


def test_it_says_its_version(superinfer: Run) -> None:
    done = superinfer("--version")
    assert (done.exit_code, done.stdout) == (0, f"superinfer {version('superinfer')}\n")


def test_ctrl_c_while_loading_ends_it_quietly() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


async def test_a_start_that_fails_early_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    no_directory = tmp_path / "file"
    no_directory.touch()
    options = ServeOptions(served_name="stub", port=free_port(), contracts=no_directory)
    with pytest.raises(FileExistsError):
        async with serving(options, progress_on(errors), StopRequest()):
            pass
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("written", [True, False], ids=["the log is there", "nothing was logged"])
def test_only_a_log_that_was_named_is_kept(tmp_path: Path, *, written: bool) -> None:
    run_dir = tmp_path / "superinfer-x"
    named = run_dir / "logs" / "executor-0.log"
    (run_dir / "contracts").mkdir(parents=True)
    named.parent.mkdir()
    for file in ("ingress.yaml", "contracts/a.yaml", "logs/ingress.log"):
        (run_dir / file).touch()
    if written:
        named.write_text("why\n")
    clear(run_dir, [named])
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == ([named] if written else [])
    assert run_dir.exists() is written
    assert not (run_dir / "contracts").exists()
