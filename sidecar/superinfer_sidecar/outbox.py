"""Collects what one stream has to say and writes it in as few messages as its reader's pace allows.

While a write is under way everything new is collected; the next write takes all of it. One task per stream,
none per message.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Outbox:
    """Base of both streams' outboxes; subclasses say what is pending."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self.written = asyncio.Event()
        """Set while nothing is pending or being written."""
        self.written.set()

    def take(self) -> bytes:
        """Everything pending as one encoded message, which is pending no longer."""
        raise NotImplementedError

    def poke(self) -> None:
        """Something is pending: write it in the next turn of the loop."""
        self.written.clear()
        self._wake.set()

    async def write_for_ever(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write whatever is pending until cancelled or the stream breaks."""
        wake = self._wake
        while True:
            await wake.wait()
            wake.clear()
            data = self.take()
            if data:
                await write(data)
            if not wake.is_set():
                self.written.set()
