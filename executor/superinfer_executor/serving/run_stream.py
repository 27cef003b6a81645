"""One sidecar's Run stream, as a sink of frames: bounded, never waited for. Event loop only."""

import asyncio
from collections import deque
from typing import Any, Final

from superinfer_proto.v1 import engine_pb2, work_pb2

MAX_QUEUED_FRAMES: Final = 20_000


class RunStream:
    """Frames on their way to a sidecar; a sidecar that does not read them loses its stream."""

    def __init__(self, max_queued: int = MAX_QUEUED_FRAMES) -> None:
        self._max_queued = max_queued
        self._frames: deque[work_pb2.Frame] = deque()
        self._ready = asyncio.Event()
        self._overrun = False

    def send(self, frame: work_pb2.Frame) -> None:
        """Queue a frame; beyond the bound the stream is lost."""
        if len(self._frames) >= self._max_queued:
            self._overrun = True
        else:
            self._frames.append(frame)
        self._ready.set()

    async def write_to(self, context: Any) -> None:
        """Write frames for ever; raises when the reader is too slow or gone."""
        while True:
            while not self._frames:
                self._ready.clear()
                await self._ready.wait()
            if self._overrun:
                raise ConnectionError("the sidecar does not read its frames")
            await context.write(engine_pb2.FromEngine(frame=self._frames.popleft()))
