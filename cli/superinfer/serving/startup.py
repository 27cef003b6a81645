"""A start as its user sees it: what is being waited for, how far it is, and where the time went.

Pure but for the clock and the progress that are passed in. Concurrency: the supervisor's loop only.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from superinfer.serving.console import Progress
from superinfer.serving.process import EventKind, ProcessEvent

PHASES: Final = {
    "vllm": "importing vLLM",
    "configuration": "reading the configuration",
    "engine": "loading the model",
    "serving layer": "preparing the API",
    "warm-up": "a first request",
}
"""Steps an executor names while it starts, in their order, in the words of its user."""
_BEFORE: Final = "starting Python"
SHOWN_S: Final = 0.5
"""Shorter phases go into the rest."""


@dataclass(slots=True)
class _Process:
    phases: list[tuple[str, float]] = field(default_factory=list)
    ready_s: float | None = None


class StartUp:
    """Follows the processes of one start, and passes their events on."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._began_s = clock()
        self._processes: dict[str, _Process] = {}

    def event(self, event: ProcessEvent) -> None:
        """Remember an event, and show it."""
        process = self._processes.setdefault(event.name, _Process())
        now_s = self._clock()
        if event.kind is EventKind.STARTING:
            process.phases, process.ready_s = [(_BEFORE, now_s)], None
        elif event.kind is EventKind.PROGRESS and event.fields.get("event") == "loading":
            step = str(event.fields.get("step") or "")
            process.phases.append((PHASES.get(step, step), now_s))
            event = replace(event, detail=_how_far(step))
        elif event.kind is EventKind.READY and process.ready_s is None:
            process.ready_s = now_s
        self._progress.event(event)

    def waiting_for(self, names: Sequence[str]) -> None:
        """Say what has not come up yet, and what it is at."""
        at = next(
            (each.phases[-1] for name in names if (each := self._processes.get(name)) and each.phases), None
        )
        if at is None:
            self._progress.step(f"waiting for {', '.join(names)}: starting")
            return
        phase, since_s = at
        self._progress.step(f"waiting for {', '.join(names)}: {phase}, for {self._clock() - since_s:.0f} s")

    def summary(self, before: Sequence[tuple[str, float]] = ()) -> str:
        """Where the time went, by the process that was last to be ready.

        Args:
            before: (what, seconds) of what the command did before it started processes.
        """
        total_s = self._clock() - self._began_s + sum(seconds for _, seconds in before)
        ready = [each for each in self._processes.values() if each.ready_s is not None]
        last = max(ready, key=lambda each: each.ready_s or 0.0, default=_Process())
        ends = [at_s for _, at_s in last.phases[1:]] + [last.ready_s or self._clock()]
        spent = [*before, *((name, end - at) for (name, at), end in zip(last.phases, ends, strict=True))]
        shown = [f"{name} {seconds:.0f} s" for name, seconds in spent if seconds >= SHOWN_S]
        return f"Up after {total_s:.0f} s" + (f": {', '.join(shown)}" if shown else "")


def _how_far(step: str) -> str:
    if step not in PHASES:
        return step
    return f"{PHASES[step]} ({list(PHASES).index(step) + 1} of {len(PHASES)})"
