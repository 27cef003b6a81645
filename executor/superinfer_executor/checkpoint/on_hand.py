"""Blocks that need not be computed: in the engine's slab, or taken over into it from the sidecar's store.

Promise: a block that is answered has the right seal, and stays as it is in the engine's slab until its
request is released: nothing is announced to vLLM that could be gone when it is loaded. A damaged block is
forgotten and counted. Scheduler's thread.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from superinfer_core.checkpoint.table import Need
from superinfer_executor.checkpoint.store_index import StoreIndex
from superinfer_executor.checkpoint.table import SlotTable
from superinfer_executor.checkpoint.tails import Tail
from superinfer_proto.slab import Counter, Slab, seal_of

log = logging.getLogger(__name__)

_MOST_WARNINGS: Final = 10


@dataclass(frozen=True, slots=True)
class Reader:
    """Whom blocks are wanted for."""

    request_id: str
    stream: int
    rank: int


@dataclass(frozen=True, slots=True)
class Held:
    """A block in the engine's slab."""

    slot: int
    sequence: int
    block_hash: bytes


@dataclass(slots=True)
class OnHand:
    """See the module."""

    slab: Slab
    table: SlotTable
    store: StoreIndex
    _right: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    _warned: int = 0

    def contiguous(self, reader: Reader, hashes: Sequence[bytes], first: int, end: int) -> list[Held]:
        """Blocks from `first` on, to before `end`, until one is not on hand."""
        self.store.refresh()
        right = self._right.setdefault(reader.request_id, set())
        found: list[Held] = []
        for ordinal in range(first, end):
            held = self._own(reader, hashes[ordinal], right) or self._take_over(
                reader, hashes[ordinal], ordinal, right
            )
            if held is None:
                break
            found.append(held)
        return found

    def first_of(self, reader: Reader, tails: Iterable[Tail]) -> tuple[Tail, Held] | None:
        """The first tail that is on hand; `contiguous` was asked before."""
        right = self._right.setdefault(reader.request_id, set())
        for tail in tails:
            held = self._own(reader, tail.name, right) or self._take_over(
                reader, tail.name, tail.ordinal, right
            )
            if held is not None:
                return tail, held
        return None

    def released(self, request_id: str) -> None:
        """Nothing is wanted for this request any more, or it has what it wanted."""
        self._right.pop(request_id, None)

    def _own(self, reader: Reader, block_hash: bytes, right: set[tuple[int, int]]) -> Held | None:
        slot = self.table.hold(block_hash, reader.request_id, reader.rank)
        if slot is None:
            return None
        header = self.slab.read(slot)
        if header is not None and header.block_hash == block_hash:
            place = (slot, header.sequence)
            if place in right or header.seal == seal_of(
                self.slab.shape.layout, block_hash, self.slab.payload(slot)
            ):
                right.add(place)
                return Held(slot, header.sequence, block_hash)
        self._damaged()
        self.table.drop(block_hash)
        return None

    def _take_over(
        self, reader: Reader, block_hash: bytes, ordinal: int, right: set[tuple[int, int]]
    ) -> Held | None:
        """Copy a block of the store: the sidecar may erase its own at any time."""
        place = self.store.find(block_hash)
        if place is None or self.store.slab is None:
            return None
        header = self.store.slab.read(place[0])
        if header is None:
            return None
        given = self.table.need(block_hash, reader.request_id, reader.rank)
        if given.need is not Need.GIVEN:
            return None
        slot = given.slot
        self.slab.clear(slot)
        payload = self.slab.payload(slot)
        payload[:] = self.store.slab.payload(place[0])
        whole = header.seal == seal_of(self.slab.shape.layout, block_hash, payload)
        if not whole or not self.store.slab.holds(*place) or header.block_hash != block_hash:
            if self.store.slab.holds(*place):  # else it was erased meanwhile, which is its right
                self._damaged()
            self.table.drop(block_hash)
            return None
        sequence = self.slab.publish(
            slot, block_hash, header.seal, reader.stream, ordinal, tail_tokens=header.tail_tokens
        )
        self.table.written([block_hash])
        right.add((slot, sequence))
        return Held(slot, sequence, block_hash)

    def _damaged(self) -> None:
        self.slab.count(Counter.LOAD_FAILURES)
        self._warned += 1
        if self._warned <= _MOST_WARNINGS:
            log.warning("a saved block is damaged: it is computed again (later ones are counted)")
