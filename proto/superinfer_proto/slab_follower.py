"""Reading a slab that another process writes: what is new in it, and where each block is now.

Promise: every block the journal or the slots tell of is told once per change, in order; a reader that fell
behind further than the journal reaches, or has just mapped the file, is told of everything that is there; a
place that is answered held its block a moment ago, which whoever reads it checks by its sequence. Nothing
waits but `SlabFile.newer`, which maps files. One owner thread each.
"""

from pathlib import Path
from typing import NamedTuple

from superinfer_proto.slab import Happened, Slab


class Noted(NamedTuple):
    """A stream needs a block, which is in that slot.

    Attributes:
        stored: the journal says that it has just come.
        tail_tokens: see `Slot`.
    """

    stream: int
    ordinal: int
    block_hash: bytes
    slot: int
    sequence: int
    tail_tokens: int
    stored: bool


class SlabFile:
    """The file of a slab, which may not exist yet and may be replaced by another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0

    def is_another(self) -> bool:
        """Whether there is a file, and not the one that was looked at last."""
        try:
            return self._path.stat().st_ino != self._inode
        except OSError:
            return False  # what is mapped stays readable

    def newer(self) -> Slab | None:
        """The slab there, where it is another one; raises OSError or SlabInvalid."""
        if not self.is_another():
            return None
        self._inode = self._path.stat().st_ino
        return Slab.open(self._path)


class SlabFollower:
    """See the module."""

    def __init__(self) -> None:
        self.slab: Slab | None = None
        self.missed_scans = 0
        """Times the journal had gone on too far."""
        self._seen = 0
        self._places: dict[bytes, tuple[int, int]] = {}
        self._by_slot: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._places)

    def attach(self, slab: Slab) -> list[Noted]:
        """Follow another slab from now on; everything in it is new, oldest first."""
        self.slab = slab
        return self._scan(slab)

    def poll(self) -> list[Noted]:
        """What is new since the last time, oldest first."""
        slab = self.slab
        if slab is None or slab.head == self._seen:
            return []
        entries, missed = slab.entries(self._seen)
        if missed:
            self.missed_scans += 1
            return self._scan(slab)
        new: list[Noted] = []
        for entry in entries:
            self._seen = entry.sequence
            header = slab.read(entry.slot)
            if header is None or header.sequence != entry.slot_sequence:
                continue  # overwritten since: another entry says so
            stored = entry.kind == Happened.STORED
            if stored:
                self._place(entry.slot, header.sequence, header.block_hash)
            elif entry.kind != Happened.REFERENCED:
                continue
            new.append(
                Noted(
                    entry.stream,
                    entry.ordinal,
                    header.block_hash,
                    entry.slot,
                    header.sequence,
                    header.tail_tokens,
                    stored=stored,
                )
            )
        return new

    def find(self, block_hash: bytes) -> tuple[int, int] | None:
        """Slot and sequence of a block, if it is still there."""
        place = self._places.get(block_hash)
        return place if place is not None and self.slab is not None and self.slab.holds(*place) else None

    def forget_places(self) -> None:
        """Everything there was erased."""
        self._places, self._by_slot = {}, {}

    def _scan(self, slab: Slab) -> list[Noted]:
        self._seen = slab.head
        self.forget_places()
        new: list[Noted] = []
        for slot, header in sorted(slab.scan(), key=lambda found: found[1].sequence):
            self._place(slot, header.sequence, header.block_hash)
            new.append(
                Noted(
                    header.stream,
                    header.ordinal,
                    header.block_hash,
                    slot,
                    header.sequence,
                    header.tail_tokens,
                    stored=False,
                )
            )
        return new

    def _place(self, slot: int, sequence: int, block_hash: bytes) -> None:
        before = self._by_slot.get(slot)
        if before is not None and self._places.get(before, (-1, 0))[0] == slot:
            del self._places[before]
        self._by_slot[slot] = block_hash
        self._places[block_hash] = (slot, sequence)
