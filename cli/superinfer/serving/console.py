"""What a user sees while processes start: a live line on a terminal, plain lines elsewhere.

Concurrency: called from the supervisor's loop only.
"""

import time
from typing import Protocol

from rich.console import Console
from rich.status import Status

from superinfer.serving.process import EventKind, ProcessEvent

_WORDS = {
    EventKind.STARTING: "starting",
    EventKind.READY: "ready",
    EventKind.STOPPING: "stopping",
    EventKind.STOPPED: "stopped",
    EventKind.CRASHED: "crashed:",
    EventKind.GAVE_UP: "does not start:",
}
_TROUBLE = frozenset({EventKind.CRASHED, EventKind.GAVE_UP})
PLAIN_REPEAT_S = 5.0


class Progress(Protocol):
    """Where events and steps are shown."""

    def event(self, event: ProcessEvent) -> None:
        """A process changed."""

    def step(self, text: str) -> None:
        """A long step is under way; called as often as there is something new to say."""

    def done(self) -> None:
        """Nothing is under way any more."""


class TerminalProgress:
    """One live line with a spinner; what went by stays above it only when it matters."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._began = time.monotonic()

    def event(self, event: ProcessEvent) -> None:
        """Ready and trouble are kept, the rest updates the live line."""
        word = _WORDS.get(event.kind, "")
        text = " ".join(part for part in (event.name, word, event.detail) if part)
        if event.kind is EventKind.READY:
            self._console.print(f"[green]✓[/green] {event.name} ready [dim]{self._elapsed()}[/dim]")
        elif event.kind in _TROUBLE:
            self._console.print(f"[red]✗[/red] {text}")
        elif event.kind is not EventKind.STOPPED:
            self.step(text)

    def step(self, text: str) -> None:
        """Update the live line."""
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        self._status.update(f"{text} [dim]{self._elapsed()}[/dim]")

    def done(self) -> None:
        """Take the live line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:.0f} s"


class PlainProgress:
    """One line per change, for logs and pipes; a step that repeats itself is said every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._last_step = ("", float("-inf"))
        self._last_event = ""

    def event(self, event: ProcessEvent) -> None:
        """One line."""
        word = _WORDS.get(event.kind, "")
        text = " ".join(part for part in (event.name, word, event.detail) if part)
        if text != self._last_event:  # a process and its supervisor may both say that it has stopped
            self._last_event = text
            self._line(text)

    def step(self, text: str) -> None:
        """One line, unless it was said just now."""
        key, now = text.split(":", 1)[0], time.monotonic()
        last, at = self._last_step
        if key != last or now - at >= PLAIN_REPEAT_S:
            self._last_step = (key, now)
            self._line(text)

    def done(self) -> None:
        """Nothing to take away."""

    def _line(self, text: str) -> None:
        self._console.print(f"[{time.monotonic() - self._began:6.1f} s] {text}", markup=False)


def progress_on(console: Console) -> Progress:
    """The fitting one for where output goes."""
    return TerminalProgress(console) if console.is_terminal else PlainProgress(console)
