"""Which blocks each stream consists of, in order: what can be restored of it without a gap. Pure.

A stream is one choice of one request, by its number (see superinfer_proto.slab.stream_of).
"""

from collections.abc import Callable, Iterator


class StreamBook:
    """Streams and their blocks; bounded by whoever ends streams and by `most_streams`."""

    def __init__(self, most_streams: int = 1 << 14) -> None:
        self._most = most_streams
        self._streams: dict[int, dict[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, stream: int) -> bool:
        return stream in self._streams

    def __iter__(self) -> Iterator[int]:
        return iter(self._streams)

    def put(self, stream: int, ordinal: int, block_hash: bytes) -> None:
        """The stream's block number `ordinal`; the oldest stream goes where there are too many."""
        blocks = self._streams.get(stream)
        if blocks is None:
            if len(self._streams) >= self._most:
                del self._streams[next(iter(self._streams))]
            blocks = self._streams[stream] = {}
        blocks[ordinal] = block_hash

    def end(self, stream: int) -> bool:
        """Forget a stream; whether it was there."""
        return self._streams.pop(stream, None) is not None

    def prune(self, held: Callable[[bytes], bool]) -> None:
        """Forget streams whose first block is gone: nothing of them can be restored."""
        gone = [
            stream
            for stream, blocks in self._streams.items()
            if (first := blocks.get(0)) is not None and not held(first)
        ]
        for stream in gone:
            del self._streams[stream]

    def contiguous(self, stream: int, held: Callable[[bytes], bool], start: int = 0) -> list[bytes]:
        """Blocks from `start` on until one is missing or not held."""
        blocks = self._streams.get(stream, {})
        found: list[bytes] = []
        while (block_hash := blocks.get(start + len(found))) is not None and held(block_hash):
            found.append(block_hash)
        return found
