"""What one peer has been sent, has acknowledged and is still to get. Pure: no clock, no I/O.

Promise: increments go in order; at most `most_waiting` wait, the oldest going first where there are more,
each counted; what was sent and not acknowledged is sent again on another stream; a block the peer has is only
referred to.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from superinfer_proto.slab import Slot
from superinfer_proto.v1 import checkpoint_pb2
from superinfer_sidecar.checkpoint.counters import CheckpointCounters, Rejected
from superinfer_sidecar.checkpoint.increments import Increment

BATCH_BYTES: Final = 2 << 20
"""A batch costs the event loop milliseconds, which tokens on their way wait for."""
WINDOW_BYTES: Final = 16 << 20
"""Sent and not acknowledged: beyond it we wait, however much there is to send."""
_MOST_IN_BATCH: Final = 1024
Read = Callable[[bytes], "tuple[Slot, bytes] | None"]


@dataclass(frozen=True, slots=True)
class _Sent:
    sequence: int
    increments: tuple[Increment, ...]
    ended: tuple[int, ...]
    payload_bytes: int


class Copies:
    """See the module. `most_known` bounds what is remembered of the peer's blocks."""

    def __init__(self, counters: CheckpointCounters, *, most_waiting: int) -> None:
        self._counters = counters
        self._most = most_waiting
        self._waiting: deque[Increment] = deque()
        self._ended: deque[int] = deque(maxlen=most_waiting)
        self._flight: OrderedDict[int, _Sent] = OrderedDict()
        self._flight_bytes = 0
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._sequence = 0
        self.acknowledged = 0
        """Of our batches, by number; above 0: the peer holds something of ours."""

    @property
    def lag_blocks(self) -> int:
        """What the peer does not have yet."""
        return len(self._waiting) + sum(len(sent.increments) for sent in self._flight.values())

    def add(self, increments: Iterable[Increment]) -> None:
        """There is more to send."""
        self._waiting.extend(increments)
        while len(self._waiting) > self._most:
            self._waiting.popleft()
            self._counters.rejected[Rejected.OVERDUE] += 1

    def end(self, streams: Iterable[int]) -> None:
        """Streams that nobody needs any more: what waits of them need not go."""
        ended = set(streams)
        if ended:
            self._waiting = deque(each for each in self._waiting if each.stream not in ended)
            self._ended.extend(ended)

    def may_send(self) -> bool:
        """Whether there is something to send, and room for it."""
        return bool(self._waiting or self._ended) and self._flight_bytes < WINDOW_BYTES

    def batch(self, layout: str, read: Read, most_bytes: float) -> checkpoint_pb2.ReplicateBatch | None:
        """The next batch of about `most_bytes`, at least one increment; None where nothing is left of it."""
        increments: list[Increment] = []
        message = checkpoint_pb2.ReplicateBatch(layout=layout, sequence=self._sequence + 1)
        size = 0
        while self._waiting and len(increments) < _MOST_IN_BATCH:
            increment = self._waiting[0]
            seal, payload = 0, b""
            if increment.block_hash not in self._known:
                if increments and size >= min(most_bytes, BATCH_BYTES):
                    break
                found = read(increment.block_hash)
                if found is None:
                    self._waiting.popleft()
                    # A tail whose block is full by now is not missed.
                    self._counters.rejected[Rejected.GONE] += not increment.tail_tokens
                    continue
                seal, payload = found[0].seal, found[1]
            self._waiting.popleft()
            size += len(payload)
            increments.append(increment)
            message.increments.add(
                block_hash=increment.block_hash,
                payload=payload,
                seal=seal,
                stream=increment.stream,
                ordinal=increment.ordinal,
                tail_tokens=increment.tail_tokens,
            )
            self._know(increment.block_hash)
        ended = tuple(self._ended)
        self._ended.clear()
        message.ended.extend(ended)
        if not increments and not ended:
            return None
        self._sequence += 1
        self._flight[self._sequence] = _Sent(self._sequence, tuple(increments), ended, size)
        self._flight_bytes += size
        self._count(message, size)
        return message

    def acknowledge(self, ack: checkpoint_pb2.ReplicateAck) -> None:
        """The peer has dealt with batches; what it lacks goes again."""
        missing = set(ack.missing)
        again: list[Increment] = []
        while self._flight and next(iter(self._flight)) <= ack.sequence:
            _, sent = self._flight.popitem(last=False)
            self._flight_bytes -= sent.payload_bytes
            again.extend(each for each in sent.increments if each.block_hash in missing)
        self.acknowledged = max(self.acknowledged, min(ack.sequence, self._sequence))
        for block_hash in missing:
            self._known.pop(block_hash, None)
        self._waiting.extendleft(reversed(again))

    def reconnect(self, ack: checkpoint_pb2.ReplicateAck, live: Callable[[], list[Increment]]) -> None:
        """A new stream, and what the peer says it has: go on from there, or from the start if it forgot."""
        if ack.sequence < self.acknowledged:
            self._flight.clear()
            self._flight_bytes = 0
            self._known.clear()
            self._waiting.clear()
            self.acknowledged = 0
            self._sequence = 0
            self.add(live())
            return
        self.acknowledge(ack)
        for sent in reversed(self._flight.values()):
            for increment in sent.increments:
                self._known.pop(increment.block_hash, None)
            self._waiting.extendleft(reversed(sent.increments))
            self._ended.extend(sent.ended)
        self._flight.clear()
        self._flight_bytes = 0

    def _know(self, block_hash: bytes) -> None:
        self._known[block_hash] = None
        self._known.move_to_end(block_hash)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def _count(self, message: checkpoint_pb2.ReplicateBatch, size: int) -> None:
        with_payload = sum(1 for each in message.increments if each.payload)
        self._counters.sent_blocks += with_payload
        self._counters.sent_references += len(message.increments) - with_payload
        self._counters.sent_bytes += size
