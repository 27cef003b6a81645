"""Running commands: output kept for errors, progress on standard output, failures that say what to do.

Synchronous; safe to call from several threads.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_STARTED: Final = time.monotonic()


class ClusterError(Exception):
    """The test cluster could not be brought to where it should be; the message says why and what to do."""


def progress(text: str) -> None:
    """Print one line of progress with the seconds since the start."""
    sys.stdout.write(f"cluster: {time.monotonic() - _STARTED:5.0f}s  {text}\n")
    sys.stdout.flush()


def run(
    command: Sequence[str | Path],
    *,
    stdin: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run a command and return its standard output.

    Raises:
        ClusterError: It failed or ran out of time; carries the end of what it wrote.
    """
    words = [str(word) for word in command]
    try:
        result = subprocess.run(
            words,
            input=stdin,
            cwd=cwd,
            env=env,
            timeout=timeout_s,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{words[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{' '.join(words[:4])} ... took longer than {timeout_s:.0f} s") from error
    if result.returncode:
        tail = "\n".join((result.stdout + result.stderr).strip().splitlines()[-25:])
        raise ClusterError(f"{' '.join(words[:6])} failed ({result.returncode}):\n{tail}")
    return result.stdout


def succeeds(command: Sequence[str | Path], *, timeout_s: float = 30) -> bool:
    """Tell whether a command exits with 0 within the time."""
    try:
        run(command, timeout_s=timeout_s)
    except ClusterError:
        return False
    return True


def pipe(producer: Sequence[str | Path], consumer: Sequence[str | Path]) -> None:
    """Feed one command's output to another without holding it in memory.

    Raises:
        ClusterError: Either of them failed.
    """
    with subprocess.Popen([str(word) for word in producer], stdout=subprocess.PIPE) as source:
        result = subprocess.run(
            [str(word) for word in consumer], stdin=source.stdout, capture_output=True, text=True, check=False
        )
    if source.returncode or result.returncode:
        names = f"{producer[0]} {producer[1]} | {consumer[0]} {consumer[1]}"
        raise ClusterError(f"{names} failed: {result.stderr.strip()[-2000:]}")
