"""The sidecar's own slab: copies of peers' blocks and blocks restored here, where the engine can read them.

Promise: only blocks of the engine's layout with the right seal are kept; memory is bounded, and what somebody
needs is not displaced; what nobody needs is erased once its time is over. Event loop only; the one writer.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final

from superinfer_core.checkpoint.streams import StreamBook
from superinfer_core.checkpoint.table import BlockTable, Need
from superinfer_proto.slab import Slab, SlabInvalid, SlabShape, Slot, seal_of
from superinfer_proto.v1 import checkpoint_pb2
from superinfer_sidecar.checkpoint.counters import CheckpointCounters, Rejected

_LOG = logging.getLogger(__name__)
_ONE_RANK: Final = 0
"""A sender has chosen by tier already: here all are equal."""


class Store:
    """See the module. A holder is whoever a stream is kept for: a peer, or a request that is restored."""

    def __init__(
        self, path: Path, memory_bytes: int, counters: CheckpointCounters, clock_s: Callable[[], float]
    ) -> None:
        self._path = path
        self._memory_bytes = memory_bytes
        self._counters = counters
        self._clock_s = clock_s
        self._table: BlockTable[tuple[Hashable, int]] = BlockTable(0)
        self._sequences: dict[bytes, int] = {}
        self._holders: dict[int, set[Hashable]] = {}
        self._ending: dict[tuple[Hashable, int], float] = {}
        self._away: dict[Hashable, float] = {}
        self.streams = StreamBook()
        self.slab: Slab | None = None

    @property
    def blocks(self) -> int:
        """How many are here."""
        return len(self._table)

    async def fit(self, layout: str, payload_bytes: int, orphan_s: float) -> None:
        """Be a store for this layout; one of another layout is emptied, since nobody here can read it.

        A thread takes the memory, since that may take a second.
        """
        if self.slab is not None and self.slab.shape.layout == layout:
            return
        try:
            shape = SlabShape.of_memory(layout, payload_bytes, self._memory_bytes)
            slab = await asyncio.to_thread(Slab.adopt, self._path, shape, generation=secrets.randbits(64))
        except SlabInvalid as error:
            if self.slab is not None or self._memory_bytes:
                _LOG.error("no copies of checkpoints are kept here: %s", error)
                self._memory_bytes = 0  # said once
            return
        if self.slab is not None:
            self.slab.close()
        self.slab = slab
        self._table = BlockTable(slab.shape.slots)
        self.streams, self._sequences = StreamBook(), {}
        self._holders, self._ending, self._away = {}, {}, {}
        self._adopt(slab, orphan_s)

    def _adopt(self, slab: Slab, orphan_s: float) -> None:
        """What a sidecar that was here before had: for requests that come back soon."""
        until_s = self._clock_s() + orphan_s
        for slot, header in list(slab.scan()):
            if not self._table.adopt(slot, header.block_hash, until_s):
                slab.erase(slot)
                continue
            self._sequences[header.block_hash] = header.sequence
            self.streams.put(header.stream, header.ordinal, header.block_hash, tail=header.tail_tokens > 0)

    def put(self, increment: checkpoint_pb2.Increment, layout: str, holder: Hashable) -> Rejected | None:
        """Keep one increment for a holder; why not, otherwise. Repeats change nothing."""
        reason = self._put(increment, layout, holder)
        if reason is not None:
            self._counters.rejected[reason] += 1
        return reason

    def _put(self, increment: checkpoint_pb2.Increment, layout: str, holder: Hashable) -> Rejected | None:
        slab, block_hash = self.slab, increment.block_hash
        if slab is None or slab.shape.layout != layout:
            return Rejected.FOREIGN
        if not 0 < len(block_hash) <= 32 or increment.ordinal >= 1 << 24 or increment.tail_tokens >= 1 << 16:
            return Rejected.MALFORMED
        slot = self._readable(block_hash)
        if slot is None:
            payload = increment.payload
            if not payload:
                return Rejected.MISSING
            if len(payload) != slab.shape.payload_bytes or increment.seal != seal_of(
                layout, block_hash, payload
            ):
                return Rejected.CORRUPT
        place = self._table.need(block_hash, (holder, increment.stream), _ONE_RANK)
        if place.need is Need.NO_ROOM:
            return Rejected.NO_ROOM
        if place.need is Need.GIVEN:
            self._write(slab, place.slot, increment, evicted=place.evicted)
        self._holders.setdefault(increment.stream, set()).add(holder)
        self._note(increment.stream, increment.ordinal, block_hash, tail=increment.tail_tokens > 0)
        self._ending.pop((holder, increment.stream), None)
        return None

    def _note(self, stream: int, ordinal: int, block_hash: bytes, *, tail: bool) -> None:
        """Enter it into the stream; the tail whose place it takes goes."""
        superseded = self.streams.put(stream, ordinal, block_hash, tail=tail)
        if superseded is not None:
            for holder in self._holders.get(stream, ()):
                self._table.untie(superseded, (holder, stream), self._clock_s())

    def _write(self, slab: Slab, slot: int, increment: checkpoint_pb2.Increment, *, evicted: bool) -> None:
        if evicted:
            self._counters.evicted_blocks += 1
            self._forget_slot(slab, slot)
        slab.clear(slot)
        slab.payload(slot)[:] = increment.payload
        block_hash = increment.block_hash
        sequence = slab.publish(
            slot,
            block_hash,
            increment.seal,
            increment.stream,
            increment.ordinal,
            tail_tokens=increment.tail_tokens,
        )
        self._sequences[block_hash] = sequence
        self._table.written([block_hash])

    def _forget_slot(self, slab: Slab, slot: int) -> None:
        header = slab.read(slot)
        if header is not None:
            self._sequences.pop(header.block_hash, None)

    def has(self, block_hash: bytes) -> bool:
        """Whether the block can be read now."""
        return self._readable(block_hash) is not None

    def _readable(self, block_hash: bytes) -> int | None:
        """Its slot, unless somebody has damaged it since: then it is forgotten."""
        slot = self._table.find(block_hash)
        if slot is None or self.slab is None:
            return None
        if self.slab.holds(slot, self._sequences.get(block_hash, 0)):
            return slot
        self._table.drop(block_hash)
        self.slab.erase(slot)
        return None

    def read(self, block_hash: bytes) -> tuple[Slot, bytes] | None:
        """Header and payload of a block, if it is there and undamaged."""
        slot = self._readable(block_hash)
        if slot is None or self.slab is None:
            return None
        found = self.slab.copy_of(slot, self._sequences[block_hash])
        if found is None:
            self._counters.rejected[Rejected.CORRUPT] += 1
            self._table.drop(block_hash)
            self.slab.erase(slot)
            return None
        return found

    def end(self, holder: Hashable, stream: int, *, after_s: float = 0.0) -> None:
        """A holder needs a stream no more, from `after_s` on."""
        if holder in self._holders.get(stream, ()):
            self._ending[holder, stream] = self._clock_s() + after_s

    def end_all_of(self, holder: Hashable, *, after_s: float) -> None:
        """A holder is away: what it needs stays for a while, since now it may be wanted."""
        self._away[holder] = self._clock_s() + after_s

    def returned(self, holder: Hashable) -> None:
        """A holder that was away is back."""
        self._away.pop(holder, None)

    def end_everywhere(self, stream: int) -> None:
        """The request itself has ended here: nobody needs its stream."""
        for holder in tuple(self._holders.get(stream, ())):
            self._ending[holder, stream] = self._clock_s()
        if stream not in self._holders:
            self.streams.end(stream)

    def expire(self) -> None:
        """Let go of what has ended, and erase what nobody needs."""
        now_s = self._clock_s()
        for holder in [holder for holder, at_s in self._away.items() if at_s <= now_s]:
            del self._away[holder]
            for stream in [stream for stream, holders in self._holders.items() if holder in holders]:
                self._ending[holder, stream] = now_s
        for (holder, stream), at_s in list(self._ending.items()):
            if at_s <= now_s:
                self._release(holder, stream, now_s)
        if self.slab is None:
            return
        self.streams.prune(self.has)
        for slot in self._table.expired(now_s):
            self._forget_slot(self.slab, slot)
            self.slab.erase(slot)
            self._counters.erased_blocks += 1

    def _release(self, holder: Hashable, stream: int, now_s: float) -> None:
        del self._ending[holder, stream]
        self._table.release((holder, stream), now_s)
        holders = self._holders[stream]
        holders.discard(holder)
        if not holders:
            del self._holders[stream]
            self.streams.end(stream)

    def close(self) -> None:
        """Leave the slab to whoever comes next."""
        if self.slab is not None:
            self.slab.close()
            self.slab = None
