"""CPU priority of what is measured, for machines that have other work: `--nice -10` on either benchmark.

Linux shares the CPU between sessions first (autogroups) and between processes second, and every process of a
benchmark is a session of its own, so both are set. Best effort: without the right to do so nothing changes.
"""

import contextlib
import os
from pathlib import Path

_wanted = 0


def want_nice(nice: int) -> None:
    """Give this process, and whatever `apply_nice` is told of from now on, this nice value."""
    global _wanted
    _wanted = nice
    apply_nice(os.getpid())


def apply_nice(pid: int) -> None:
    """Set a process that has just been started."""
    if _wanted == 0:
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _wanted)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_wanted), encoding="ascii")
