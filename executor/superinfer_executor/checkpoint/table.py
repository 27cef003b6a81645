"""The engine's slab and whose blocks are in it: core's table over shared memory.

Promise: a slot that is given up is erased before anyone gets it again. Several threads: every method takes
the lock.
"""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from superinfer_core.checkpoint.table import BlockTable, Place
from superinfer_proto.slab import Counter, Slab

_ERASED_AT_ONCE: Final = 4
engine_slabs: Final[dict[Path, Slab]] = {}
"""The slabs this process writes: both sides of the connector are in it (see engine_layout)."""


class SlotTable:
    """See the module. Streams are the engine's request ids."""

    def __init__(self, slab: Slab, *, now_s: float, orphan_s: float) -> None:
        self._slab = slab
        self._lock = threading.Lock()
        self._table: BlockTable[str] = BlockTable(slab.shape.slots)
        # What an earlier engine left here may still be wanted by a request that comes back.
        for slot, header in list(slab.scan()):
            if not self._table.adopt(slot, header.block_hash, now_s + orphan_s):
                slab.erase(slot)

    def has(self, block_hash: bytes) -> bool:
        """Whether the block can be read."""
        with self._lock:
            return self._table.find(block_hash) is not None

    def hold(self, block_hash: bytes, request_id: str, rank: int) -> int | None:
        """The slot of a block that can be read, and which stays as it is until the request is released."""
        with self._lock:
            slot = self._table.find(block_hash)
            if slot is not None:
                self._table.need(block_hash, request_id, rank)
            return slot

    def need(self, block_hash: bytes, request_id: str, rank: int) -> Place:
        """Tie a block to a request; a slot that is given is empty."""
        with self._lock:
            place = self._table.need(block_hash, request_id, rank)
            if place.evicted:
                self._slab.erase(place.slot)
                self._slab.count(Counter.EVICTED_BLOCKS)
            return place

    def written(self, block_hashes: Iterable[bytes]) -> None:
        """Their payloads are there."""
        with self._lock:
            self._table.written(block_hashes)

    def drop(self, block_hash: bytes) -> None:
        """The block is not what it should be."""
        with self._lock:
            slot = self._table.drop(block_hash)
            if slot is not None:
                self._slab.erase(slot)

    def pin(self, request_id: str, block_hashes: Iterable[bytes]) -> None:
        """The request loads these: they make room for nobody, until `unpin`."""
        with self._lock:
            self._table.pin(request_id, block_hashes)

    def unpin(self, request_id: str) -> None:
        """They are loaded."""
        with self._lock:
            self._table.unpin(request_id)

    def untie(self, block_hash: bytes, request_id: str) -> None:
        """A request does not need this one any more; it is erased soon where nobody else does."""
        with self._lock:
            self._table.untie(block_hash, request_id, 0.0)

    def release(self, request_id: str, until_s: float) -> None:
        """A request has ended; what only it needed stays until `until_s`."""
        with self._lock:
            self._table.release(request_id, until_s)

    def erase_expired(self, now_s: float) -> None:
        """Erase what nobody needs any more and whose time is over."""
        over = [0]
        while over:
            with self._lock:  # a step that wants it waits for a few erasures at most
                over = self._table.expired(now_s, _ERASED_AT_ONCE)
                for slot in over:
                    self._slab.erase(slot)
                self._slab.count(Counter.ERASED_BLOCKS, len(over))

    def next_expiry_s(self) -> float | None:
        """When something is to be erased next."""
        with self._lock:
            return self._table.next_expiry()
