"""Watches an engine that has work: tells when it hangs, and never calls it so for lack of CPU.

Looked at every few dozen milliseconds; costs nothing while the engine speaks. Owned by the event loop.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from superinfer_core.failover.hang import HangPolicy, Work, hangs

_NOTICED_MS: Final = 250.0
"""Silence from which on the engine's threads are looked at."""
_LATE_MS: Final = 100.0
"""A look that comes so late was not taken in time: whatever came meanwhile is still unread."""


class Starved(Protocol):
    """What tells how long an engine had no CPU since it was made."""

    def so_far_ms(self) -> float:
        """Milliseconds."""


class EngineWatch:
    """Of one sidecar; `on_engine` for every new connection."""

    def __init__(self, policy: HangPolicy, *, every_ms: float, starvation: Callable[[int], Starved]) -> None:
        self._policy = policy
        self._every_ms = every_ms
        self._starvation = starvation
        self._pid: int | None = None
        self._up_ms = self._since_ms = 0.0
        self._looked_ms: float | None = None
        self._blind_ms = 0.0
        self._starved: Starved | None = None

    def on_engine(self, pid: int | None, now_ms: float) -> None:
        """Another engine process; None where it cannot be seen."""
        self._pid = pid
        self._starved = None
        self._up_ms = self._since_ms = now_ms
        self._looked_ms, self._blind_ms = None, 0.0

    def hangs(
        self, now_ms: float, *, last_frame_ms: float, work: Work, longest_step_ms: float, trusted: bool
    ) -> bool:
        """Look at it once."""
        late_ms = 0.0 if self._looked_ms is None else now_ms - self._looked_ms - self._every_ms
        self._looked_ms = now_ms
        if work is Work.NONE or last_frame_ms > self._since_ms:
            self._since_ms = now_ms if work is Work.NONE else last_frame_ms
            self._blind_ms, self._starved = 0.0, None
        if late_ms > _LATE_MS:
            self._blind_ms += late_ms
        silent_ms = now_ms - self._since_ms
        if work is Work.NONE or silent_ms < _NOTICED_MS:
            return False
        if self._starved is None and self._pid:
            self._starved = self._starvation(self._pid)
        starved_ms = 0.0 if self._starved is None else self._starved.so_far_ms()
        grown = now_ms - self._up_ms >= self._policy.young_ms
        limit_ms = self._policy.limit_ms(work, longest_step_ms=longest_step_ms, trusted=trusted and grown)
        return hangs(silent_ms=silent_ms, starved_ms=starved_ms, blind_ms=self._blind_ms, limit_ms=limit_ms)


def end_engine(pid: int | None) -> bool:
    """Kill the process of an engine that hangs, with what it started: it must not wake up and compute on.

    Only one that is an executor of ours: process ids are used again.
    """
    if pid is None or pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        if b"superinfer_executor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return True
    return False
