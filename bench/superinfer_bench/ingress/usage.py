"""CPU time and memory of process trees, from the kernel's own accounts."""

from collections.abc import Iterable
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """Of some processes and all they started, at one instant."""

    cpu_s: float
    rss_mib: float


def usage(pids: Iterable[int]) -> Usage:
    """Sum over the trees of `pids`; children that have ended count with the parent that waited for them."""
    cpu = rss = 0.0
    for pid in pids:
        for process in _tree(pid):
            try:
                times = process.cpu_times()
                rss += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            cpu += times.user + times.system + times.children_user + times.children_system
    return Usage(cpu, rss / (1 << 20))


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
