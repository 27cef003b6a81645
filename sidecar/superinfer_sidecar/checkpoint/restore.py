"""Brings a resumed request's blocks here before the engine gets it.

Promise: never takes longer than computing the tokens again would, by prediction; whatever has come by then is
used, whatever has not is computed. Event loop only.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from superinfer_core.checkpoint.restore import Holding, RestoreBounds, best_holding
from superinfer_proto.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from superinfer_sidecar.checkpoint.counters import CheckpointCounters, Restore
from superinfer_sidecar.checkpoint.holdings import Holdings
from superinfer_sidecar.checkpoint.replication import OpenChannel
from superinfer_sidecar.checkpoint.store import Store

_LOG = logging.getLogger(__name__)
_MOST_HOLDERS: Final = 8


class Restorer:
    """See the module."""

    def __init__(
        self,
        store: Store,
        holdings: Holdings,
        counters: CheckpointCounters,
        open_channel: OpenChannel,
        *,
        layout: Callable[[], str],
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._counters = counters
        self._open_channel = open_channel
        self._layout = layout

    async def restore(
        self, holder_key: object, streams: Sequence[int], holders: Sequence[str], bounds: RestoreBounds
    ) -> None:
        """Fetch what is missing of these streams from the best of these addresses; never raises."""
        began_s = time.monotonic()
        try:
            result = await self._restore(holder_key, streams, holders[:_MOST_HOLDERS], bounds)
        except Exception:  # noqa: BLE001 - the request goes on without
            _LOG.exception("a request could not be restored: it is computed again")
            result = Restore.NONE
        self._counters.restores[result] += 1
        self._counters.restore_ms += (time.monotonic() - began_s) * 1000

    async def _restore(
        self, holder_key: object, streams: Sequence[int], holders: Sequence[str], bounds: RestoreBounds
    ) -> Restore:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + bounds.total_ms / 1000
        layout = self._layout()
        own = self._holdings.of(layout, streams)
        channels = {address: self._open_channel(address) for address in dict.fromkeys(holders)}
        try:
            held = await _located(channels, layout, streams, bounds.locate_ms / 1000)
            best = best_holding(held, own)
            if best is None:
                return Restore.OWN if own.halves else Restore.NONE
            fetched = 0
            try:
                async with asyncio.timeout_at(until_s):
                    async for increment in _fetched(channels[best.address], self._holdings, layout, streams):
                        if self._store.put(increment, layout, holder_key) is None:
                            fetched += 1
                            self._counters.fetched_blocks += 1
                            self._counters.fetched_bytes += len(increment.payload)
            except (TimeoutError, grpc.aio.AioRpcError) as error:
                _LOG.info("a restore was cut short after %d blocks: %s", fetched, type(error).__name__)
                return Restore.PART
            here = self._holdings.of(layout, streams)
            return Restore.WHOLE if here.halves >= best.halves else Restore.PART
        finally:
            await asyncio.gather(*(channel.close() for channel in channels.values()))


async def _located(
    channels: dict[str, grpc.aio.Channel], layout: str, streams: Sequence[int], within_s: float
) -> list[Holding]:
    """What holders say in time; the others have nothing."""
    request = checkpoint_pb2.LocateRequest(layout=layout, streams=streams)

    async def ask(address: str, channel: grpc.aio.Channel) -> Holding:
        try:
            found = await _stub(channel).Locate(request, timeout=within_s)
        except grpc.aio.AioRpcError:
            return Holding(address, 0)
        return Holding(address, sum(found.contiguous_blocks), sum(found.tails))

    return list(await asyncio.gather(*(ask(*each) for each in channels.items())))


async def _fetched(
    channel: grpc.aio.Channel, holdings: Holdings, layout: str, streams: Sequence[int]
) -> AsyncIterator[checkpoint_pb2.Increment]:
    request = checkpoint_pb2.FetchRequest(layout=layout)
    for stream in streams:
        request.wanted.add(stream=stream, first_block=holdings.blocks(layout, stream))
    call = _stub(channel).Fetch(request)
    try:
        async for batch in call:
            for increment in batch.increments:
                yield increment
    finally:
        call.cancel()


def _stub(channel: grpc.aio.Channel) -> Any:
    return checkpoint_pb2_grpc.CheckpointStub(channel)  # type: ignore[no-untyped-call]
