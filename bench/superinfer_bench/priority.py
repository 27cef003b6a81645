"""CPU priority of what is measured, for machines that have other work: `--nice -10` on either benchmark.

Linux shares the CPU between sessions first (autogroups) and between processes second, and every process of a
benchmark is a session of its own, so both are set. Best effort: without the right to do so nothing changes.
"""

import contextlib
import os
from pathlib import Path

import psutil

_wanted = 0


def want_nice(nice: int) -> None:
    """Give this process, and whatever `apply_nice` is told of from now on, this nice value."""
    global _wanted
    _wanted = nice
    apply_nice(os.getpid())


def apply_nice(pid: int) -> None:
    """Set a process and all it has started so far."""
    if _wanted == 0:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _wanted)
                Path(f"/proc/{process.pid}/autogroup").write_text(str(_wanted), encoding="ascii")
