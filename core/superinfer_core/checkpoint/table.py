"""Whose blocks are in which slots: slots given out, kept while somebody needs them, given back after that.

Promise: a slot is given to one block at a time; nothing that is needed makes room for something less or
equally important; what nobody needs goes first, longest unneeded first. Pure bookkeeping of one owner: the
bytes are the caller's, who clears the slots it is told of before they are used again.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

Stream = TypeVar("Stream", bound=Hashable)


@dataclass(slots=True, eq=False)
class Block(Generic[Stream]):
    """One block.

    Attributes:
        needed_by: streams that need it, by the rank of each (lower is more important).
        written: its bytes are there; until then it is kept whatever happens.
    """

    slot: int
    block_hash: bytes
    needed_by: dict[Stream, int] = field(default_factory=dict)
    written: bool = False

    @property
    def rank(self) -> int:
        """Of the most important stream that needs it."""
        return min(self.needed_by.values())


class Need(Enum):
    """What asking for a block's place gave."""

    THERE = auto()
    """It has a slot."""
    GIVEN = auto()
    """It has one from now on, which is the caller's to fill."""
    NO_ROOM = auto()


@dataclass(frozen=True, slots=True)
class Place:
    """The answer to a need; `evicted` is the slot's block before, to be cleared, if it had one."""

    need: Need
    slot: int = -1
    evicted: bool = False


class BlockTable(Generic[Stream]):
    """See the module."""

    def __init__(self, slots: int) -> None:
        self._blocks: dict[bytes, Block[Stream]] = {}
        self._streams: dict[Stream, list[Block[Stream]]] = {}
        self._unneeded: OrderedDict[bytes, float] = OrderedDict()  # until when each stays
        self._pinned: dict[Stream, frozenset[bytes]] = {}
        self._free = list(range(slots - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._blocks)

    def adopt(self, slot: int, block_hash: bytes, until: float) -> bool:
        """Take over a written block that nobody here needs yet; False where its hash is there already."""
        if block_hash in self._blocks:
            return False
        self._free.remove(slot)
        self._blocks[block_hash] = Block(slot, block_hash, written=True)
        self._unneeded[block_hash] = until
        return True

    def find(self, block_hash: bytes) -> int | None:
        """The slot of a block that can be read."""
        block = self._blocks.get(block_hash)
        return block.slot if block is not None and block.written else None

    def need(self, block_hash: bytes, stream: Stream, rank: int) -> Place:
        """Tie a block to a stream."""
        block = self._blocks.get(block_hash)
        if block is not None:
            self._tie(block, stream, rank)
            return Place(Need.THERE, block.slot)
        evicted = not self._free
        if evicted and not self._make_room(rank):
            return Place(Need.NO_ROOM)
        block = self._blocks[block_hash] = Block(self._free.pop(), block_hash)
        self._tie(block, stream, rank)
        return Place(Need.GIVEN, block.slot, evicted)

    def written(self, block_hashes: Iterable[bytes]) -> None:
        """Their bytes are there."""
        for block_hash in block_hashes:
            block = self._blocks.get(block_hash)
            if block is not None:
                block.written = True

    def drop(self, block_hash: bytes) -> int | None:
        """Forget a block, whoever needs it; answers the slot to clear."""
        block = self._blocks.get(block_hash)
        if block is None:
            return None
        for stream in block.needed_by:
            self._streams[stream].remove(block)
        return self._forget(block)

    def release(self, stream: Stream, until: float) -> None:
        """A stream has ended; what only it needed stays until `until`."""
        for block in self._streams.pop(stream, ()):
            del block.needed_by[stream]
            if not block.needed_by:
                self._unneeded[block.block_hash] = until

    def pin(self, stream: Stream, block_hashes: Iterable[bytes]) -> None:
        """These are being read for a stream: they make room for nobody, until `unpin`."""
        self._pinned[stream] = frozenset(block_hashes)

    def unpin(self, stream: Stream) -> None:
        """They are read."""
        self._pinned.pop(stream, None)

    def untie(self, block_hash: bytes, stream: Stream, until: float) -> None:
        """A stream does not need this one any more; where nobody else does, it stays until `until`."""
        block = self._blocks.get(block_hash)
        if block is None or stream not in block.needed_by:
            return
        del block.needed_by[stream]
        self._streams[stream].remove(block)
        if not block.needed_by:
            self._unneeded[block_hash] = until

    def expired(self, now: float, most: int | None = None) -> list[int]:
        """Forget what nobody needs and whose time is over, at most so many; answers the slots to clear."""
        over = [key for key, until in self._unneeded.items() if until <= now and self._blocks[key].written]
        del over[len(over) if most is None else most :]
        return [self._forget(self._blocks[key]) for key in over]

    def next_expiry(self) -> float | None:
        """When something expires next."""
        return min(self._unneeded.values(), default=None)

    def _tie(self, block: Block[Stream], stream: Stream, rank: int) -> None:
        self._unneeded.pop(block.block_hash, None)
        if stream not in block.needed_by:
            block.needed_by[stream] = rank
            self._streams.setdefault(stream, []).append(block)

    def _make_room(self, rank: int) -> bool:
        """Free one slot: what nobody needs, else the end of the least important stream below `rank`.

        The end, because blocks are of use only from the first one on without a gap.
        """
        pinned = frozenset[bytes]().union(*self._pinned.values())
        for key in self._unneeded:
            if self._blocks[key].written and key not in pinned:
                self._forget(self._blocks[key])
                return True
        least: Block[Stream] | None = None
        for blocks in self._streams.values():
            last = blocks[-1] if blocks else None
            if last is None or not last.written or last.block_hash in pinned:
                continue
            if least is None or last.rank > least.rank:
                least = last
        if least is None or least.rank <= rank:
            return False
        self.drop(least.block_hash)
        return True

    def _forget(self, block: Block[Stream]) -> int:
        del self._blocks[block.block_hash]
        self._unneeded.pop(block.block_hash, None)
        self._free.append(block.slot)
        return block.slot
