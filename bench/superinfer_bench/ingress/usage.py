"""CPU time and memory of process trees, from the kernel's own accounts.

CPU comes from each process' CPU clock, in nanoseconds, and holds threads that have ended; /proc counts in
steps of ten milliseconds, too coarse for a proxy that spends twenty microseconds a token.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import psutil

_SCHEDULER_CLOCK: Final = 2
"""CPUCLOCK_SCHED of the Linux kernel: what the scheduler counted for the whole process."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of some processes and all they started, at one instant."""

    cpu_s: float
    rss_mib: float


def usage(pids: Iterable[int]) -> Usage:
    """Sum over the trees of `pids`, as they are now."""
    cpu = rss = 0.0
    for pid in pids:
        for process in _tree(pid):
            try:
                cpu += cpu_s(process.pid)
                rss += process.memory_info().rss
            except (psutil.NoSuchProcess, OSError):
                continue
    return Usage(cpu, rss / (1 << 20))


def cpu_s(pid: int) -> float:
    """CPU seconds of one process since it began (as clock_getcpuclockid(3) finds its clock)."""
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
