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
from superinfer_proto.slab import Slab, SlabInvalid, Slot, has_writer
from superinfer_proto.slab_follower import Noted, SlabFile, SlabFollower
from superinfer_sidecar.checkpoint.counters import CheckpointCounters

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Increment:
    """One stream needs one block, which is in that slot; `tail_tokens` above 0: it is not full."""

    stream: int
    ordinal: int
    block_hash: bytes
    slot: int
    sequence: int
    tail_tokens: int = 0


class Increments:
    """See the module. `on_new` gets every increment once, in order."""

    def __init__(
        self, path: Path, counters: CheckpointCounters, on_new: Callable[[list[Increment]], None]
    ) -> None:
        self._path = path
        self._counters = counters
        self._on_new = on_new
        self._file = SlabFile(path)
        self._follower = SlabFollower()
        self.streams = StreamBook()

    @property
    def slab(self) -> Slab | None:
        """What is followed."""
        return self._follower.slab

    def poll(self) -> None:
        """Take in what is new since the last time."""
        self._take(self._follower.poll())
        self._counters.missed_scans = self._follower.missed_scans

    def _take(self, noted: list[Noted]) -> None:
        if not noted:
            return
        self._counters.seen_blocks += sum(each.stored for each in noted)
        for each in noted:
            self.streams.put(each.stream, each.ordinal, each.block_hash, tail=each.tail_tokens > 0)
        self._on_new([_increment(each) for each in noted])

    @property
    def holds_any(self) -> bool:
        """Whether there is a block of anybody."""
        return bool(len(self._follower) and len(self.streams))

    def has(self, block_hash: bytes) -> bool:
        """Whether the block can be read now."""
        return self._follower.find(block_hash) is not None

    def read(self, block_hash: bytes) -> tuple[Slot, bytes] | None:
        """Header and payload of a block, if it is there and undamaged."""
        place, slab = self._follower.find(block_hash), self.slab
        if place is None or slab is None:
            return None
        found = slab.copy_of(*place)
        return None if found is None or found[0].block_hash != block_hash else found

    def live(self) -> list[Increment]:
        """Everything streams need that is still there, stream by stream, in order."""
        found = []
        for stream in self.streams:
            for ordinal, block_hash in enumerate(self.streams.held(stream, self.has)):
                place = self._follower.find(block_hash)
                header = None if place is None or self.slab is None else self.slab.read(place[0])
                if place is None or header is None:
                    break
                found.append(Increment(stream, ordinal, block_hash, *place, header.tail_tokens))
        return found

    def end(self, streams: Iterable[int]) -> None:
        """Nobody needs these streams any more. The engine erases its own blocks while it lives."""
        for stream in streams:
            self.streams.end(stream)

    async def erase_for_dead_engine(self) -> None:
        """Nobody needs anything: where no engine writes, which would erase its own, we do it."""
        if self.slab is None or not len(self._follower) or has_writer(self._path):
            return
        await asyncio.to_thread(self._erase_all, self.slab.inode)
        self._follower.forget_places()
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
        """Map the file, or the one that has taken its place; a thread does it, since it may take a while."""
        try:
            slab = await asyncio.to_thread(self._file.newer) if self._file.is_another() else None
        except (OSError, SlabInvalid) as error:
            _LOG.warning("the engine's increments cannot be read: %s", error)
            return
        if slab is None:
            return
        if self.slab is not None:
            self.slab.close()
        self.streams = StreamBook()
        _LOG.info("following increments", extra={"layout": slab.shape.layout, "slots": slab.shape.slots})
        self._take(self._follower.attach(slab))


def _increment(noted: Noted) -> Increment:
    place = (noted.slot, noted.sequence)
    return Increment(noted.stream, noted.ordinal, noted.block_hash, *place, noted.tail_tokens)
