"""What the sidecar has put into its slab for this engine: blocks of peers and of requests that come back.

Promise: only slabs of our own layout are looked at; a block named here may be gone by the time it is read,
which the reader notices by its sequence. The scheduler's thread, but for `follow`, which maps files and is
another thread's.
"""

import logging
from pathlib import Path

from superinfer_proto.slab import Happened, Slab, SlabInvalid

log = logging.getLogger(__name__)


class StoreIndex:
    """Follows one slab file, which may not exist yet and may be replaced."""

    def __init__(self, path: Path, layout: str) -> None:
        self._path = path
        self._layout = layout
        self._inode = 0
        self._mapped: Slab | None = None
        self._seen = 0
        self._by_hash: dict[bytes, tuple[int, int]] = {}
        self._by_slot: dict[int, bytes] = {}
        self.slab: Slab | None = None

    def follow(self) -> None:
        """Map the file if it is new: takes up to a second, so no step may wait for it."""
        try:
            inode = self._path.stat().st_ino
        except OSError:
            return  # what is mapped stays readable
        if inode == self._inode:
            return
        self._inode = inode
        try:
            slab = Slab.open(self._path)
        except (OSError, SlabInvalid) as error:
            log.warning("the sidecar's checkpoint store cannot be read: %s", error)
            return
        if slab.shape.layout != self._layout:
            log.info("the sidecar's checkpoint store has another layout (%s): not read", slab.shape.layout)
            slab.close()
            return
        self._mapped = slab

    def refresh(self) -> None:
        """Take in what is new."""
        if self._mapped is not self.slab and self._mapped is not None:
            self.slab = self._mapped
            self._scan(self.slab)
        if self.slab is None or self.slab.head == self._seen:
            return
        entries, missed = self.slab.entries(self._seen)
        if missed:
            self._scan(self.slab)
            return
        for entry in entries:
            self._seen = entry.sequence
            if entry.kind == Happened.STORED:
                header = self.slab.read(entry.slot)
                if header is not None and header.sequence == entry.slot_sequence:
                    self._put(header.block_hash, entry.slot, header.sequence)

    def find(self, block_hash: bytes) -> tuple[int, int] | None:
        """Slot and sequence of a block, if it is still there."""
        found = self._by_hash.get(block_hash)
        if found is None or self.slab is None or not self.slab.holds(*found):
            return None
        return found

    def _scan(self, slab: Slab) -> None:
        self._seen = slab.head
        self._by_hash, self._by_slot = {}, {}
        for slot, header in slab.scan():
            self._put(header.block_hash, slot, header.sequence)

    def _put(self, block_hash: bytes, slot: int, sequence: int) -> None:
        before = self._by_slot.get(slot)
        if before is not None and self._by_hash.get(before, (-1, 0))[0] == slot:
            del self._by_hash[before]
        self._by_slot[slot] = block_hash
        self._by_hash[block_hash] = (slot, sequence)
