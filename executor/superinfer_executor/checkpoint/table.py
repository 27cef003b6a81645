"""Whose blocks are where in the engine's slab: slots given out, kept while needed, and erased after that.

Promise: a slot is given to one block at a time; nothing that a running request needs makes room for
something less important; what nobody needs is erased once its time is over. Several threads: every method takes the lock.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from superinfer_proto.slab import Counter, Slab


@dataclass(slots=True, eq=False)
class Block:
    """One block of the slab.

    Attributes:
        needed_by: streams of running requests, by the rank of each.
        written: its payload is there; until then it belongs to a step under way.
    """

    slot: int
    block_hash: bytes
    needed_by: dict[str, int] = field(default_factory=dict)
    written: bool = False

    @property
    def rank(self) -> int:
        """Of the most important request that needs it."""
        return min(self.needed_by.values())


class Need(Enum):
    """What asking for a block's place gave."""

    THERE = auto()
    """It is saved, or will be by a step under way."""
    GIVEN = auto()
    """A slot is the caller's to fill."""
    NO_ROOM = auto()


class SlotTable:
    """See the module."""

    def __init__(self, slab: Slab, *, now_s: float, orphan_s: float) -> None:
        self._slab = slab
        self._lock = threading.Lock()
        self._blocks: dict[bytes, Block] = {}
        self._streams: dict[str, list[Block]] = {}
        self._idle: OrderedDict[bytes, float] = OrderedDict()  # needed by nobody, and until when they stay
        self._free = list(range(slab.shape.slots - 1, -1, -1))
        self._adopt(now_s + orphan_s)

    def _adopt(self, until_s: float) -> None:
        """What an earlier engine left here may still be wanted by a request that comes back."""
        taken = set()
        for slot, header in self._slab.scan():
            if header.block_hash in self._blocks:
                self._slab.erase(slot)
                continue
            taken.add(slot)
            self._blocks[header.block_hash] = Block(slot, header.block_hash, written=True)
            self._idle[header.block_hash] = until_s
        self._free = [slot for slot in self._free if slot not in taken]

    def find(self, block_hash: bytes) -> int | None:
        """The slot of a block that can be read."""
        with self._lock:
            block = self._blocks.get(block_hash)
            return block.slot if block is not None and block.written else None

    def need(self, block_hash: bytes, stream: str, rank: int) -> tuple[Need, int]:
        """Tie a block to a stream; answers whether it is there, and its slot."""
        with self._lock:
            block = self._blocks.get(block_hash)
            if block is None:
                slot = self._slot_for(rank)
                if slot is None:
                    return Need.NO_ROOM, -1
                block = self._blocks[block_hash] = Block(slot, block_hash)
                self._tie(block, stream, rank)
                return Need.GIVEN, slot
            self._tie(block, stream, rank)
            return Need.THERE, block.slot

    def written(self, block_hashes: Sequence[bytes]) -> None:
        """Their payloads are there."""
        with self._lock:
            for block_hash in block_hashes:
                block = self._blocks.get(block_hash)
                if block is not None:
                    block.written = True

    def drop(self, block_hash: bytes) -> None:
        """The block is not what it should be, or was never written: forget it, whoever needs it."""
        with self._lock:
            block = self._blocks.pop(block_hash, None)
            if block is None:
                return
            for stream in block.needed_by:
                self._streams[stream].remove(block)
            self._idle.pop(block_hash, None)
            self._slab.erase(block.slot)
            self._free.append(block.slot)

    def release(self, stream: str, until_s: float) -> None:
        """A stream has ended; what only it needed stays until `until_s`."""
        with self._lock:
            for block in self._streams.pop(stream, ()):
                del block.needed_by[stream]
                if not block.needed_by:
                    self._idle[block.block_hash] = until_s

    def erase_expired(self, now_s: float) -> None:
        """Erase what nobody needs any more and whose time is over."""
        with self._lock:
            over = [key for key, until_s in self._idle.items() if until_s <= now_s]
            for key in over:
                if self._blocks[key].written:  # else the step that fills it is still under way
                    self._erase(key)
                    self._slab.count(Counter.ERASED_BLOCKS)

    def next_expiry_s(self) -> float | None:
        """When something is to be erased next."""
        with self._lock:
            return min(self._idle.values(), default=None)

    def _tie(self, block: Block, stream: str, rank: int) -> None:
        self._idle.pop(block.block_hash, None)
        if stream not in block.needed_by:
            block.needed_by[stream] = rank
            self._streams.setdefault(stream, []).append(block)

    def _slot_for(self, rank: int) -> int | None:
        if not self._free:
            self._make_room(rank)
        return self._free.pop() if self._free else None

    def _make_room(self, rank: int) -> None:
        """Free one slot: what nobody needs, longest idle first; else the end of the least important stream.

        The end, because blocks are of use only from the first one on without a gap.
        """
        for key in self._idle:
            if self._blocks[key].written:
                self._erase(key)
                self._slab.count(Counter.EVICTED_BLOCKS)
                return
        least: Block | None = None
        for blocks in self._streams.values():
            last = blocks[-1] if blocks else None
            if last is not None and last.written and (least is None or last.rank > least.rank):
                least = last
        if least is None or least.rank <= rank:
            return
        for stream in least.needed_by:
            self._streams[stream].remove(least)
        least.needed_by.clear()
        self._erase(least.block_hash)
        self._slab.count(Counter.EVICTED_BLOCKS)

    def _erase(self, block_hash: bytes) -> None:
        block = self._blocks.pop(block_hash)
        self._idle.pop(block_hash, None)
        self._slab.erase(block.slot)
        self._free.append(block.slot)
