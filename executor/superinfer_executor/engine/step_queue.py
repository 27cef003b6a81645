"""Outputs of one request on their way from vLLM's output processor to its serving layer.

vLLM's own collector merges steps when its reader is slow; the ledger needs every engine step as its own
group, so this one keeps them apart. Event loop only.
"""

import asyncio
from collections import deque
from typing import Any


class StepQueue:
    """What vLLM calls a RequestOutputCollector: `put` by the output processor, `get` by one reader."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self._items: deque[tuple[Any, bool]] = deque()
        self._ready = asyncio.Event()

    def put(self, output: Any) -> None:
        """Add a step's output, or an exception that ends the request."""
        self._items.append((output, False))
        self._ready.set()

    def put_replayed(self, output: Any) -> None:
        """Add an output made from tokens that were delivered before."""
        self._items.append((output, True))
        self._ready.set()

    async def get(self) -> tuple[Any, bool]:
        """The next output, and whether it is a replayed one; raises what was put as an exception."""
        while not self._items:
            self._ready.clear()
            await self._ready.wait()
        output, replayed = self._items.popleft()
        if isinstance(output, Exception):
            raise output
        return output, replayed

    def close(self) -> None:
        """Part of the interface vLLM expects; nothing to release."""
