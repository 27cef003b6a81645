"""Lines written off the request path: the access log and the request log.

Promises: adding a line is an append to a list; writing happens a few times a second on a thread, so a slow
disk or a blocked pipe never holds a request up; when the writer cannot keep up, lines are dropped and
counted, memory does not grow; nothing here ever sees a prompt.
Concurrency: `add` from the event loop; one flush at a time.
"""

import asyncio
import contextlib
import logging
from typing import IO, Final

_log = logging.getLogger("superinfer.ingress")

_FLUSH_S: Final = 0.2
_MOST_WAITING: Final = 100_000


class LineSink:
    """A file or stream that gets whole lines in batches."""

    def __init__(self, stream: IO[str], *, close: bool) -> None:
        self._stream = stream
        self._close = close
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._failing = False
        self.dropped = 0

    def add(self, line: str) -> None:
        """Queue one line, without its newline."""
        if len(self._waiting) >= _MOST_WAITING:
            self.dropped += 1
            return
        self._waiting.append(line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush_soon)

    async def flushed(self) -> None:
        """Return once what waits now was written, or lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._flush_soon()
        if self._flushing is not None:
            await self._flushing

    async def close(self) -> None:
        """Write what waits and, where the sink owns its file, close it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await self._flushing
        with contextlib.suppress(OSError, ValueError):
            self._write(self._waiting)
            if self._close:
                self._stream.close()
        self._waiting = []

    def _flush_soon(self) -> None:
        self._timer = None
        if self._flushing is not None and not self._flushing.done():
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush_soon)
            return
        lines, self._waiting = self._waiting, []
        self._flushing = asyncio.get_running_loop().run_in_executor(None, self._write_safely, lines)

    def _write_safely(self, lines: list[str]) -> None:
        try:
            self._write(lines)
        except (OSError, ValueError) as error:
            self.dropped += len(lines)
            if not self._failing:  # once: where the disk is full, more lines about it do not help
                _log.warning("log lines are lost from now on: %s", error)
            self._failing = True
        else:
            if self._failing:
                _log.warning("log lines are written again; %d were lost", self.dropped)
            self._failing = False

    def _write(self, lines: list[str]) -> None:
        if lines:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
