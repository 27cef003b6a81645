"""What this sidecar can give of a stream: its own engine's blocks and its store, as one. Event loop only."""

from collections.abc import Iterable, Iterator, Sequence

from superinfer_core.checkpoint.restore import Holding
from superinfer_proto.v1 import checkpoint_pb2
from superinfer_sidecar.checkpoint.increments import Increments
from superinfer_sidecar.checkpoint.store import Store


class Holdings:
    """See the module."""

    def __init__(self, increments: Increments, store: Store) -> None:
        self._increments = increments
        self._store = store

    def blocks(self, layout: str, stream: int) -> int:
        """Blocks from the first on without a gap; 0 for another layout."""
        return len(self._hashes(layout, stream, 0))

    def has_tail(self, layout: str, stream: int) -> bool:
        """Whether a part of the block after them is here, too."""
        blocks = self.blocks(layout, stream)
        return len(self._hashes(layout, stream, 0, tail=True)) > blocks

    def of(self, layout: str, streams: Sequence[int]) -> Holding:
        """All of these streams together."""
        blocks = sum(self.blocks(layout, stream) for stream in streams)
        return Holding("", blocks, sum(self.has_tail(layout, stream) for stream in streams))

    def increments(self, layout: str, stream: int, first: int) -> Iterator[checkpoint_pb2.Increment]:
        """The blocks from `first` on and the tail after them, as far as they can be read."""
        for ordinal, block_hash in enumerate(self._hashes(layout, stream, first, tail=True), first):
            found = self._increments.read(block_hash) or self._store.read(block_hash)
            if found is None:
                return
            header, payload = found
            yield checkpoint_pb2.Increment(
                block_hash=block_hash,
                payload=payload,
                seal=header.seal,
                stream=stream,
                ordinal=ordinal,
                tail_tokens=header.tail_tokens,
            )

    def _hashes(self, layout: str, stream: int, first: int, *, tail: bool = False) -> list[bytes]:
        """What a stream has in either place; a restore brings what the engine had not saved here."""
        books = [
            source.streams
            for source in (self._increments, self._store)
            if source.slab is not None and source.slab.shape.layout == layout
        ]
        found: list[bytes] = []
        while (block := self._held(book.block(stream, first + len(found)) for book in books)) is not None:
            found.append(block)
        part = self._held(book.tail(stream, first + len(found)) for book in books) if tail else None
        return found if part is None else [*found, part]

    def _held(self, names: Iterable[bytes | None]) -> bytes | None:
        """The first of these blocks that is here."""
        return next((name for name in names if name is not None and self._has(name)), None)

    def _has(self, block_hash: bytes) -> bool:
        return self._increments.has(block_hash) or self._store.has(block_hash)
