"""A program under measurement that is not ours: started, watched and ended with everything it started.

Promise: nothing outlives the block, nor the benchmark itself (the kernel ends it with its parent).
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from superinfer.serving import launch
from superinfer.serving.supervisor import log_tail
from superinfer_bench.priority import apply_nice
from superinfer_bench.stack import BenchFailed

GRACE_S = 5.0


class Child:
    """One process group; use as a context manager."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._command = list(command)
        self._env = dict(env)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process itself."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        guard = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), str(int(signal.SIGTERM))]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *self._command],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        apply_nice(self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started itself
        process.wait()

    def check(self) -> None:
        """Raise BenchFailed if it has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            code, tail = self._process.returncode, log_tail(self._log, 30)
            raise BenchFailed(f"{self.name} ended with {code}. The end of its log:\n{tail}")
