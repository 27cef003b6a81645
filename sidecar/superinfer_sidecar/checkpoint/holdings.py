"""What this sidecar can give of a stream: its own engine's blocks and its store, as one. Event loop only."""

from collections.abc import Iterator

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
        books = [
            (source.streams.held if tail else source.streams.contiguous)(stream, self._has, first)
            for source in (self._increments, self._store)
            if source.slab is not None and source.slab.shape.layout == layout
        ]
        return max(books, key=len, default=[])

    def _has(self, block_hash: bytes) -> bool:
        return self._increments.has(block_hash) or self._store.has(block_hash)
