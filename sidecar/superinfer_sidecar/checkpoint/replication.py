"""Sends copies of new increments to the chosen peers, one stream each, within the bandwidth budget.

Promise: never more than the budget over any second beyond its burst, nor more in flight than the window; a
peer that is slow or away costs bounded memory and nothing else. Event loop only.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc
import grpc.aio

from superinfer_core.checkpoint.budget import ByteBudget
from superinfer_core.checkpoint.peers import Peer, choose_peers
from superinfer_proto.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from superinfer_sidecar.checkpoint.copies import BATCH_BYTES, Copies
from superinfer_sidecar.checkpoint.counters import CheckpointCounters
from superinfer_sidecar.checkpoint.increments import Increment, Increments
from superinfer_sidecar.checkpoint.settings import CheckpointSettings

_LOG = logging.getLogger(__name__)
_FIRST_RETRY_S: Final = 0.1
_LAST_RETRY_S: Final = 2.0
_GREETING_S: Final = 5.0
_MOST_WAITING: Final = 1 << 14
_BURST_S: Final = 0.25
OpenChannel = Callable[[str], grpc.aio.Channel]


class Replicator:
    """See the module."""

    def __init__(
        self,
        settings: CheckpointSettings,
        executor: str,
        increments: Increments,
        counters: CheckpointCounters,
        open_channel: OpenChannel,
    ) -> None:
        self._settings = settings
        self._executor = executor
        self._increments = increments
        self._counters = counters
        self._open_channel = open_channel
        rate = settings.budget_bytes_per_s
        self._budget = ByteBudget(rate, max(rate * _BURST_S, float(BATCH_BYTES)))
        self._session = secrets.randbits(64)
        self._links: dict[str, _PeerLink] = {}

    @property
    def holders(self) -> list[str]:
        """Names of executors that hold copies of ours."""
        return [name for name, link in self._links.items() if link.copies.acknowledged > 0 and link.up]

    @property
    def lag_blocks(self) -> int:
        """Increments that not every chosen peer has."""
        return max((link.copies.lag_blocks for link in self._links.values()), default=0)

    def peers(self, peers: Iterable[Peer]) -> None:
        """The pool as it is now."""
        settings = self._settings
        chosen = choose_peers(self._executor, peers, settings.policy, settings.replicas)
        wanted = {peer.executor: peer for peer in chosen}
        for name, link in list(self._links.items()):
            peer = wanted.get(name)
            if peer is None or peer.address != link.peer.address:
                self._links.pop(name).close()
        for name, peer in wanted.items():
            if name not in self._links:
                _LOG.info("copies of checkpoints go to %s", name)
                link = self._links[name] = _PeerLink(self, peer)
                link.copies.add(self._increments.live())
                link.start()

    def add(self, increments: list[Increment]) -> None:
        """New increments."""
        for link in self._links.values():
            link.copies.add(increments)
            link.wake.set()

    def end(self, streams: list[int]) -> None:
        """Streams nobody needs any more."""
        for link in self._links.values():
            link.copies.end(streams)
            link.wake.set()

    async def close(self) -> None:
        """End all streams."""
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.close()
        await asyncio.gather(*(link.task for link in links if link.task), return_exceptions=True)

    # --- for the links

    def greeting(self) -> checkpoint_pb2.ReplicateBatch | None:
        """Who we are; None while we have no increments at all."""
        slab = self._increments.slab
        if slab is None:
            return None
        return checkpoint_pb2.ReplicateBatch(
            executor=self._executor, session=self._session, layout=slab.shape.layout
        )

    async def next_batch(self, copies: Copies) -> checkpoint_pb2.ReplicateBatch | None:
        """What goes next, once the budget allows it."""
        slab = self._increments.slab
        if slab is None:
            return None
        loop = asyncio.get_running_loop()
        wait_ms = self._budget.wait_ms(slab.shape.payload_bytes, loop.time() * 1000)
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        now_ms = loop.time() * 1000
        batch = copies.batch(slab.shape.layout, self._increments.read, self._budget.available(now_ms))
        if batch is not None:
            self._budget.spend(sum(len(each.payload) for each in batch.increments), now_ms)
        return batch

    def live(self) -> list[Increment]:
        """Everything a peer that has nothing needs."""
        return self._increments.live()

    def broken(self, peer: Peer, why: str, *, said: bool) -> None:
        """A stream broke."""
        self._counters.broken_streams += 1
        if not said:
            _LOG.warning("no copies go to %s: %s", peer.executor, why)

    def channel(self, address: str) -> grpc.aio.Channel:
        """A channel to a peer."""
        return self._open_channel(address)

    def new_copies(self) -> Copies:
        """The record of a new peer."""
        return Copies(self._counters, most_waiting=_MOST_WAITING)


class _PeerLink:
    """One peer: its record and the stream to it, opened again for ever."""

    def __init__(self, owner: Replicator, peer: Peer) -> None:
        self._owner = owner
        self.peer = peer
        self.copies = owner.new_copies()
        self.wake = asyncio.Event()
        self.up = False
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self.task = asyncio.create_task(self._run_for_ever())

    def close(self) -> None:
        """End the stream; whoever closes waits for the task if it wants to."""
        if self.task is not None:
            self.task.cancel()

    async def _run_for_ever(self) -> None:
        retry_s, said = _FIRST_RETRY_S, False
        while True:
            why = ""
            channel = None
            try:
                channel = self._owner.channel(self.peer.address)
                await self._run(checkpoint_pb2_grpc.CheckpointStub(channel))  # type: ignore[no-untyped-call]
                why = "it ended the stream"
            except grpc.aio.AioRpcError as error:
                why = f"{error.code().name}: {error.details()}"
            except (TimeoutError, OSError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
                why = f"{type(error).__name__}: {error}"
            finally:
                if channel is not None:
                    await channel.close()
            if self.up:
                retry_s, said = _FIRST_RETRY_S, False
            self.up = False
            self._owner.broken(self.peer, why, said=said)
            said = True
            await asyncio.sleep(retry_s)
            retry_s = min(_LAST_RETRY_S, retry_s * 2)

    async def _run(self, stub: Any) -> None:
        while (greeting := self._owner.greeting()) is None:
            self.wake.clear()
            await self.wake.wait()
        call = stub.Replicate()
        async with asyncio.timeout(_GREETING_S):
            await call.write(greeting)
            ack = await call.read()
        if ack is grpc.aio.EOF:
            raise ConnectionError("it ended the stream at once")
        self.copies.reconnect(ack, self._owner.live)
        self.up = True
        self.wake.set()
        reading = asyncio.create_task(self._read(call))
        writing = asyncio.create_task(self._write(call))
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, writing):
                task.cancel()
            results = await asyncio.gather(reading, writing, return_exceptions=True)
            call.cancel()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _read(self, call: Any) -> None:
        while (ack := await call.read()) is not grpc.aio.EOF:
            self.copies.acknowledge(ack)
            self.wake.set()

    async def _write(self, call: Any) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.copies.may_send():
                batch = await self._owner.next_batch(self.copies)
                if batch is None:
                    break
                with contextlib.suppress(asyncio.InvalidStateError):
                    await call.write(batch)
