"""What the sidecar has put into its slab for this engine: blocks of peers and of requests that come back.

Promise: only slabs of our own layout are looked at; a block named here may be gone by the time it is read,
which the reader notices by its sequence. The scheduler's thread, but for `follow`, which maps files and is
another thread's.
"""

import logging
from pathlib import Path

from superinfer_proto.slab import Slab, SlabInvalid
from superinfer_proto.slab_follower import SlabFile, SlabFollower

log = logging.getLogger(__name__)


class StoreIndex:
    """Follows one slab file, which may not exist yet and may be replaced."""

    def __init__(self, path: Path, layout: str) -> None:
        self._file = SlabFile(path)
        self._layout = layout
        self._mapped: Slab | None = None
        self._follower = SlabFollower()

    @property
    def slab(self) -> Slab | None:
        """What is followed, if there is anything of our layout."""
        return self._follower.slab

    def follow(self) -> None:
        """Map the file if it is new: may take a while, so no step may wait for it."""
        try:
            slab = self._file.newer()
        except (OSError, SlabInvalid) as error:
            log.warning("the sidecar's checkpoint store cannot be read: %s", error)
            return
        if slab is None:
            return
        if slab.shape.layout != self._layout:
            log.info("the sidecar's checkpoint store has another layout (%s): not read", slab.shape.layout)
            slab.close()
            return
        self._mapped = slab

    def refresh(self) -> None:
        """Take in what is new."""
        mapped = self._mapped
        if mapped is not None and mapped is not self._follower.slab:
            self._follower.attach(mapped)
        else:
            self._follower.poll()

    def find(self, block_hash: bytes) -> tuple[int, int] | None:
        """Slot and sequence of a block, if it is still there."""
        return self._follower.find(block_hash)
