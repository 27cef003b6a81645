"""Which attempt of which request may speak: fencing by (request id, attempt).

Promises: at most one attempt of a request runs; a lower attempt than any seen is dropped, also when it
comes late, as far back as the memory reaches (bounded). Event loop only.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # a stream imports vLLM; fencing is tested without it
    from superinfer_executor.serving.stream import Stream

REMEMBERED_REQUESTS: Final = 65_536


class StreamRegistry:
    """See the module."""

    def __init__(self, remembered: int = REMEMBERED_REQUESTS) -> None:
        self._remembered = remembered
        self._running: dict[str, tuple[Stream, asyncio.Task[None]]] = {}
        self._by_engine_id: dict[str, Stream] = {}
        self._highest: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator["Stream"]:
        return iter([stream for stream, _ in self._running.values()])

    def admit(self, request_id: str, attempt: int) -> bool:
        """Whether this attempt may start; a lower one that runs is cancelled first."""
        if attempt <= self._highest.get(request_id, -1):
            return False
        self._remember(request_id, attempt)
        self._stop(request_id)
        return True

    def start(self, stream: "Stream") -> None:
        """Run an admitted stream."""
        task = asyncio.create_task(stream.run(), name=f"stream {stream.request_id}/{stream.attempt}")
        self._running[stream.request_id] = stream, task
        task.add_done_callback(lambda _: self._ended(stream))

    def cancel(self, request_id: str, attempt: int) -> None:
        """Stop this attempt or a lower one, and let neither start any more."""
        if attempt < self._highest.get(request_id, -1):
            return
        self._remember(request_id, attempt)
        self._stop(request_id)

    def cancel_all_of(self, owner: object) -> None:
        """Stop what a Run stream that is gone had asked for; a later attempt may still start."""
        for stream, _ in list(self._running.values()):
            if stream.owner is owner:
                self._stop(stream.request_id)

    def claim(self, engine_id: str, stream: "Stream") -> None:
        """The engine knows this stream, or a choice of it, by this id."""
        self._by_engine_id[engine_id] = stream

    def find(self, engine_id: str) -> "Stream | None":
        """The stream behind an engine id."""
        return self._by_engine_id.get(engine_id)

    def is_running(self, engine_id: str) -> bool:
        """Whether anything is still expected from it."""
        return engine_id in self._by_engine_id

    async def wait_until_idle(self) -> None:
        """Return when nothing runs."""
        while self._running:
            await asyncio.wait([task for _, task in self._running.values()])

    def _stop(self, request_id: str) -> None:
        found = self._running.pop(request_id, None)
        if found is None:
            return
        stream, task = found
        stream.cancelled = True
        self._forget_ids(stream)
        task.cancel()

    def _ended(self, stream: "Stream") -> None:
        found = self._running.get(stream.request_id)
        if found is not None and found[0] is stream:
            del self._running[stream.request_id]
        self._forget_ids(stream)

    def _forget_ids(self, stream: "Stream") -> None:
        for engine_id in stream.engine_ids:
            self._by_engine_id.pop(engine_id, None)

    def _remember(self, request_id: str, attempt: int) -> None:
        self._highest[request_id] = max(attempt, self._highest.get(request_id, -1))
        self._highest.move_to_end(request_id)
        while len(self._highest) > self._remembered:
            self._highest.popitem(last=False)
