"""How long a process had no CPU although it wanted one, from what Linux tells of its threads.

A thread that is ready and not running adds to the second figure of its schedstat; a group whose quota is used
up adds to `throttled` in its cpu.stat. A step waits for its slowest thread, so the greatest of them counts.
What cannot be read (another process namespace, another kernel) counts as no starvation. Reads files; no state
but the figures it started from.
"""

import contextlib
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_CGROUP: Final = Path("/sys/fs/cgroup")
_DEEPEST: Final = 3
"""Generations of processes looked at: the executor, its engine, the engine's workers."""


class Starvation:
    """Of one process and what it started, from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waits_ns = _waits_ns(pid)
        self._throttled_ms = _throttled_ms(pid)

    def so_far_ms(self) -> float:
        """Since the beginning; threads that began later count from their own beginning."""
        waits = _waits_ns(self._pid)
        longest_ns = max((ns - self._waits_ns.get(thread, 0) for thread, ns in waits.items()), default=0)
        return max(0.0, longest_ns / 1e6) + max(0.0, _throttled_ms(self._pid) - self._throttled_ms)


def processes(pid: int) -> list[int]:
    """A process and its descendants; empty if it cannot be seen."""
    found, generation = [], [pid] if (_PROC / str(pid)).exists() else []
    for _ in range(_DEEPEST):
        found += generation
        children: list[int] = []
        for parent in generation:
            with contextlib.suppress(OSError, ValueError):
                for listed in (_PROC / str(parent) / "task").glob("*/children"):
                    children += [int(child) for child in listed.read_text().split()]
        generation = children
    return found


def _waits_ns(pid: int) -> dict[str, int]:
    waits: dict[str, int] = {}
    for process in processes(pid):
        with contextlib.suppress(OSError):
            for task in (_PROC / str(process) / "task").iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    waits[task.name] = int((task / "schedstat").read_text().split()[1])
    return waits


def _throttled_ms(pid: int) -> float:
    """Of the process' control group, version 2 or 1."""
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / str(pid) / "cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                group = _CGROUP / path.lstrip("/")
            elif "cpu" in controllers.split(","):
                group = _CGROUP / "cpu" / path.lstrip("/")
            else:
                continue
            with contextlib.suppress(OSError, ValueError):
                facts = dict(each.split() for each in (group / "cpu.stat").read_text().splitlines())
                if "throttled_usec" in facts:
                    return int(facts["throttled_usec"]) / 1e3
                if "throttled_time" in facts:
                    return int(facts["throttled_time"]) / 1e6
    return 0.0
