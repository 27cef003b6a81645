"""The Checkpoint service: what other sidecars of the pool may do here.

Promise: only sidecars of our own pool are answered (see `admits`); an increment is stored only if the engine
here could have made it (layout, seal); nothing a peer sends can make the store larger than it is. Event loop
only.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio
from typing_extensions import override

from superinfer_proto.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from superinfer_sidecar.checkpoint.counters import CheckpointCounters, Rejected
from superinfer_sidecar.checkpoint.holdings import Holdings
from superinfer_sidecar.checkpoint.store import Store

_LOG = logging.getLogger(__name__)
SERVICE: Final = "superinfer.v1.Checkpoint"
_MOST_STREAMS: Final = 4096
_TOO_MANY: Final = f"at most {_MOST_STREAMS} streams at a time"
_MOST_NAME: Final = 256
_FETCH_BATCH_BYTES: Final = 2 << 20
Admits = Callable[[Any], str]
"""Why the peer of a call may not speak to us; "" where it may."""


class CheckpointService(checkpoint_pb2_grpc.CheckpointServicer):
    """See the module."""

    def __init__(
        self,
        store: Store,
        holdings: Holdings,
        counters: CheckpointCounters,
        *,
        admits: Admits,
        orphan_s: float,
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._counters = counters
        self._admits = admits
        self._orphan_s = orphan_s
        self._dealt_with: dict[tuple[str, int], int] = {}
        self._streams: dict[str, object] = {}

    @override
    async def Replicate(self, request_iterator: Any, context: Any) -> None:
        """Take a peer's increments."""
        await self._check(context)
        greeting = await context.read()
        if greeting is grpc.aio.EOF:
            return
        if not 0 < len(greeting.executor) <= _MOST_NAME or greeting.increments or greeting.ended:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first batch says who sends, no more")
        slab = self._store.slab
        if slab is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no engine has been here: its layout is unknown")
        if slab is None or slab.shape.layout != greeting.layout:
            self._counters.rejected[Rejected.FOREIGN] += 1
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "increments of another layout")
        name, key, mine = greeting.executor, (greeting.executor, greeting.session), object()
        self._forget_older_sessions(key)
        self._streams[name] = mine
        self._store.returned(name)
        await context.write(checkpoint_pb2.ReplicateAck(sequence=self._dealt_with.setdefault(key, 0)))
        try:
            while (batch := await context.read()) is not grpc.aio.EOF:
                await context.write(self._take(batch, key, greeting.layout))
        finally:
            if self._streams.get(name) is mine:
                del self._streams[name]
                self._store.end_all_of(name, after_s=self._orphan_s)

    @override
    async def Locate(
        self, request: checkpoint_pb2.LocateRequest, context: Any
    ) -> checkpoint_pb2.LocateResponse:
        """How much of some streams is here."""
        await self._check(context)
        if len(request.streams) > _MOST_STREAMS:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _TOO_MANY)
        held = [self._holdings.blocks(request.layout, stream) for stream in request.streams]
        tails = [self._holdings.has_tail(request.layout, stream) for stream in request.streams]
        return checkpoint_pb2.LocateResponse(contiguous_blocks=held, tails=tails)

    @override
    async def Fetch(self, request: checkpoint_pb2.FetchRequest, context: Any) -> None:
        """Send blocks of some streams, in order."""
        await self._check(context)
        if len(request.wanted) > _MOST_STREAMS:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _TOO_MANY)
        batch, size = checkpoint_pb2.FetchedBatch(), 0
        for wanted in request.wanted:
            for increment in self._holdings.increments(request.layout, wanted.stream, wanted.first_block):
                batch.increments.append(increment)
                size += len(increment.payload)
                self._counters.served_blocks += 1
                if size >= _FETCH_BATCH_BYTES:
                    await context.write(batch)
                    batch, size = checkpoint_pb2.FetchedBatch(), 0
        if batch.increments:
            await context.write(batch)

    async def _check(self, context: Any) -> None:
        reason = self._admits(context)
        if reason:
            self._counters.refused_peers += 1
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)

    def _take(
        self, batch: checkpoint_pb2.ReplicateBatch, key: tuple[str, int], layout: str
    ) -> checkpoint_pb2.ReplicateAck:
        done = self._dealt_with.get(key, 0)
        ack = checkpoint_pb2.ReplicateAck(sequence=done)
        if batch.sequence <= done:
            self._counters.rejected[Rejected.REPLAYED] += len(batch.increments)
            return ack
        for increment in batch.increments:
            # A sender cannot change layouts on the way: another one needs another stream.
            reason = self._store.put(increment, batch.layout or layout, key[0])
            if reason is Rejected.MISSING:
                ack.missing.append(increment.block_hash)
            elif reason is not None:
                ack.refused += 1
            elif increment.payload:
                self._counters.taken_blocks += 1
                self._counters.taken_bytes += len(increment.payload)
        for stream in batch.ended:
            self._store.end(key[0], stream)
        self._dealt_with[key] = ack.sequence = batch.sequence
        return ack

    def _forget_older_sessions(self, key: tuple[str, int]) -> None:
        for other in [other for other in self._dealt_with if other[0] == key[0] and other != key]:
            del self._dealt_with[other]
