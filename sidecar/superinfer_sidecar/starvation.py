"""How long a process had no CPU although it wanted one, from what Linux tells of its threads.

A thread that waited adds to the second figure of its schedstat once it runs again; one that waits still was
in state R at the last look, is so now, and has not run between. A group whose quota is used up adds to
`throttled` in its cpu.stat. A step waits for its slowest thread, so the greatest of them counts. What cannot
be read (another process namespace, another kernel) counts as no starvation.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_CGROUP: Final = Path("/sys/fs/cgroup")
_DEEPEST: Final = 3
"""Generations of processes looked at: the executor, its engine, the engine's workers."""


@dataclass(slots=True)
class _Thread:
    """What was seen of one thread; figures of schedstat in nanoseconds.

    `still_ms`: since when it waits without having run; schedstat will have it afterwards.
    """

    ran: int
    waited: int
    waited_first: int
    ready: bool
    still_ms: float = 0.0


class Starvation:
    """Of one process and what it started, from now on; the oftener it is looked at, the better it knows."""

    def __init__(self, pid: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._pid = pid
        self._clock_s = clock_s
        self._threads: dict[str, _Thread] = {}
        self._looked_s = clock_s()
        self._throttled_ms = _throttled_ms(pid)
        self._look(0.0)

    def so_far_ms(self) -> float:
        """Since the beginning; threads that began later count from their own beginning."""
        now_s = self._clock_s()
        elapsed_ms, self._looked_s = (now_s - self._looked_s) * 1000.0, now_s
        self._look(elapsed_ms)
        waits_ms = (
            (thread.waited - thread.waited_first) / 1e6 + thread.still_ms for thread in self._threads.values()
        )
        throttled_ms = max(0.0, _throttled_ms(self._pid) - self._throttled_ms)
        return max(0.0, max(waits_ms, default=0.0)) + throttled_ms

    def _look(self, elapsed_ms: float) -> None:
        for process in processes(self._pid):
            with contextlib.suppress(OSError):
                for task in (_PROC / str(process) / "task").iterdir():
                    with contextlib.suppress(OSError, ValueError, IndexError):
                        self._note(task, elapsed_ms)

    def _note(self, task: Path, elapsed_ms: float) -> None:
        ran, waited = (int(figure) for figure in (task / "schedstat").read_text().split()[:2])
        ready = (task / "stat").read_text().rpartition(") ")[2][0] == "R"
        known = self._threads.get(task.name)
        if known is None:
            self._threads[task.name] = _Thread(ran, waited, waited, ready)
            return
        waits = ready and known.ready and ran == known.ran
        known.still_ms = known.still_ms + elapsed_ms if waits else 0.0
        known.ran, known.waited, known.ready = ran, waited, ready


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
