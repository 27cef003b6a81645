"""Which blocks each stream consists of, in order: what can be restored of it without a gap. Pure.

A stream is one choice of one request, by its number (see superinfer_proto.slab.stream_of). Beside whole
blocks it may have one tail: the block after them as far as it was filled. Another tail, and the whole block,
take its place.
"""

from collections.abc import Callable, Iterator


class StreamBook:
    """Streams and their blocks; bounded by whoever ends streams and by `most_streams`."""

    def __init__(self, most_streams: int = 1 << 14) -> None:
        self._most = most_streams
        self._streams: dict[int, dict[int, bytes]] = {}
        self._tails: dict[int, tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, stream: int) -> bool:
        return stream in self._streams

    def __iter__(self) -> Iterator[int]:
        return iter(self._streams)

    def put(self, stream: int, ordinal: int, block_hash: bytes, *, tail: bool = False) -> bytes | None:
        """The stream's block number `ordinal`; the oldest stream goes where there are too many.

        Answers the tail whose place it takes, if there was one.
        """
        blocks = self._streams.get(stream)
        if blocks is None:
            if len(self._streams) >= self._most:
                self.end(next(iter(self._streams)))
            blocks = self._streams[stream] = {}
        before = self._tails.get(stream)
        if tail:
            self._tails[stream] = (ordinal, block_hash)
        else:
            blocks[ordinal] = block_hash
            if before is None or ordinal < before[0]:
                return None
            del self._tails[stream]
        return before[1] if before is not None and before[1] != block_hash else None

    def end(self, stream: int) -> bool:
        """Forget a stream; whether it was there."""
        self._tails.pop(stream, None)
        return self._streams.pop(stream, None) is not None

    def prune(self, held: Callable[[bytes], bool]) -> None:
        """Forget streams whose first block is gone: nothing of them can be restored."""
        gone = [
            stream
            for stream, blocks in self._streams.items()
            if (first := blocks.get(0)) is not None and not held(first)
        ]
        for stream in gone:
            self.end(stream)

    def contiguous(self, stream: int, held: Callable[[bytes], bool], start: int = 0) -> list[bytes]:
        """Blocks from `start` on until one is missing or not held."""
        blocks = self._streams.get(stream, {})
        found: list[bytes] = []
        while (block_hash := blocks.get(start + len(found))) is not None and held(block_hash):
            found.append(block_hash)
        return found

    def block(self, stream: int, ordinal: int) -> bytes | None:
        """Its block of that number."""
        return self._streams.get(stream, {}).get(ordinal)

    def tail(self, stream: int, ordinal: int) -> bytes | None:
        """Its tail, if that is a part of the block of that number."""
        at, block_hash = self._tails.get(stream, (-1, b""))
        return block_hash if at == ordinal else None

    def held(self, stream: int, held: Callable[[bytes], bool], start: int = 0) -> list[bytes]:
        """The same, and the tail after them, if it is held."""
        found = self.contiguous(stream, held, start)
        block_hash = self.tail(stream, start + len(found))
        return [*found, block_hash] if block_hash is not None and held(block_hash) else found
