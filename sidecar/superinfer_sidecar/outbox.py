"""Collects what one stream has to say and writes it in as few messages as its reader's pace allows.

While a write is under way everything new is collected; the next write takes all of it. One task per stream,
none per message. A message costs far more than what is in it, so a stream with more to say than `calm_per_s`
waits a millisecond for company before it writes. Real engines step far less often: they never wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

WINDOW_S: Final = 0.05
PACE_S: Final = 0.001


class Outbox:
    """Base of both streams' outboxes; subclasses say what is pending."""

    def __init__(self, calm_per_s: float) -> None:
        self._calm_per_s = calm_per_s
        self._pokes = 0
        self._closed = False
        self._wake = asyncio.Event()
        self.written = asyncio.Event()
        """Set while nothing is pending or being written."""
        self.written.set()

    def take(self) -> bytes:
        """Everything pending as one encoded message, which is pending no longer."""
        raise NotImplementedError

    def poke(self) -> None:
        """Something is pending: write it in the next turn of the loop."""
        self._pokes += 1
        self.written.clear()
        self._wake.set()

    def close(self) -> None:
        """Let the write under way be the last one."""
        self._closed = True
        self._wake.set()

    async def write_for_ever(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write whatever is pending until closed or cancelled, or the stream breaks."""
        wake, clock = self._wake, asyncio.get_running_loop().time
        since_s, busy = clock(), False
        while not self._closed:
            await wake.wait()
            if self._closed:
                return
            elapsed_s = clock() - since_s
            if elapsed_s > WINDOW_S:
                busy = self._pokes > self._calm_per_s * elapsed_s
                since_s, self._pokes = since_s + elapsed_s, 0
            if busy:
                await asyncio.sleep(PACE_S)
            wake.clear()
            data = self.take()
            if data:
                await write(data)
            if not wake.is_set():
                self.written.set()
