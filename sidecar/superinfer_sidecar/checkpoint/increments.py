"""Follows what the engine saves: its slab, mapped here too, and which streams need which of its blocks.

Promise: nothing is copied until somebody wants it; what is copied has the sequence it was listed with and the
right seal. The mapping outlives the engine, so that its blocks can still be read. Event loop only.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from superinfer_core.checkpoint.streams import StreamBook
from superinfer_proto.slab import Happened, Slab, SlabInvalid, has_writer
from superinfer_sidecar.checkpoint.counters import CheckpointCounters

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Increment:
    """One stream needs one block, which is in that slot."""

    stream: int
    ordinal: int
    block_hash: bytes
    slot: int
    sequence: int


class Increments:
    """See the module. `on_new` gets every increment once, in order."""

    def __init__(
        self, path: Path, counters: CheckpointCounters, on_new: Callable[[list[Increment]], None]
    ) -> None:
        self._path = path
        self._counters = counters
        self._on_new = on_new
        self._seen = 0
        self._inode = 0
        self._places: dict[bytes, tuple[int, int]] = {}
        self._by_slot: dict[int, bytes] = {}
        self.streams = StreamBook()
        self.slab: Slab | None = None

    def poll(self) -> None:
        """Take in what is new since the last time."""
        slab = self.slab
        if slab is None or slab.head == self._seen:
            return
        entries, missed = slab.entries(self._seen)
        if missed:
            self._counters.missed_scans += 1
            self._scan(slab)
            return
        new = []
        for entry in entries:
            self._seen = entry.sequence
            header = slab.read(entry.slot)
            if header is None or header.sequence != entry.slot_sequence:
                continue  # overwritten since: another entry says so
            if entry.kind == Happened.STORED:
                self._place(entry.slot, header.sequence, header.block_hash)
                self._counters.seen_blocks += 1
            elif entry.kind != Happened.REFERENCED:
                continue
            new.append(self._tie(entry.stream, entry.ordinal, header.block_hash, entry.slot, header.sequence))
        if new:
            self._on_new(new)

    @property
    def holds_any(self) -> bool:
        """Whether there is a block of anybody."""
        return bool(self._places and len(self.streams))

    def has(self, block_hash: bytes) -> bool:
        """Whether the block can be read now."""
        place = self._places.get(block_hash)
        return place is not None and self.slab is not None and self.slab.holds(*place)

    def read(self, block_hash: bytes) -> tuple[int, bytes] | None:
        """Seal and payload of a block, if it is there and whole."""
        place = self._places.get(block_hash)
        if place is None or self.slab is None:
            return None
        found = self.slab.copy_of(*place)
        if found is None or found[0].block_hash != block_hash:
            return None
        return found[0].seal, found[1]

    def live(self) -> list[Increment]:
        """Everything streams need that is still there, stream by stream, in order."""
        found = []
        for stream in self.streams:
            for ordinal, block_hash in enumerate(self.streams.contiguous(stream, self.has)):
                slot, sequence = self._places[block_hash]
                found.append(Increment(stream, ordinal, block_hash, slot, sequence))
        return found

    def end(self, streams: Iterable[int]) -> None:
        """Nobody needs these streams any more. The engine erases its own blocks while it lives."""
        for stream in streams:
            self.streams.end(stream)

    async def erase_for_dead_engine(self) -> None:
        """Nobody needs anything: where no engine writes, which would erase its own, we do it."""
        if self.slab is None or not self._places or has_writer(self._path):
            return
        await asyncio.to_thread(self._erase_all, self.slab.inode)
        self._places.clear()
        self._by_slot.clear()
        self.streams = StreamBook()

    def _erase_all(self, inode: int) -> None:
        try:
            slab = Slab.open(self._path, writable=True)
        except (OSError, SlabInvalid):
            return
        if slab.inode == inode and slab.lock():
            for slot, _ in list(slab.scan()):
                slab.erase(slot)
        slab.close()

    async def follow(self) -> None:
        """Map the file, or the one that has taken its place; a thread does it, since it may take a second."""
        try:
            inode = self._path.stat().st_ino
        except OSError:
            return
        if inode == self._inode:
            return
        self._inode = inode
        try:
            slab = await asyncio.to_thread(Slab.open, self._path)
        except (OSError, SlabInvalid) as error:
            _LOG.warning("the engine's increments cannot be read: %s", error)
            return
        if self.slab is not None:
            self.slab.close()
        self._seen, self._places, self._by_slot = 0, {}, {}
        self.streams = StreamBook()
        self.slab = slab
        _LOG.info("following increments", extra={"layout": slab.shape.layout, "slots": slab.shape.slots})
        self._scan(slab)

    def _scan(self, slab: Slab) -> None:
        """Everything that is there, as if it had just happened: oldest first."""
        self._seen = slab.head
        new = []
        for slot, header in sorted(slab.scan(), key=lambda found: found[1].sequence):
            self._place(slot, header.sequence, header.block_hash)
            new.append(self._tie(header.stream, header.ordinal, header.block_hash, slot, header.sequence))
        if new:
            self._on_new(new)

    def _place(self, slot: int, sequence: int, block_hash: bytes) -> None:
        before = self._by_slot.get(slot)
        if before is not None and self._places.get(before, (-1, 0))[0] == slot:
            del self._places[before]
        self._by_slot[slot] = block_hash
        self._places[block_hash] = (slot, sequence)

    def _tie(self, stream: int, ordinal: int, block_hash: bytes, slot: int, sequence: int) -> Increment:
        self.streams.put(stream, ordinal, block_hash)
        return Increment(stream, ordinal, block_hash, slot, sequence)
