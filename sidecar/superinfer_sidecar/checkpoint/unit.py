"""All of a sidecar's checkpoints: follows the engine, keeps copies, sends copies, restores before dispatch.

The service gives it the desk's news (admitted, left) and the ingress' (peers). Event loop only; nothing it
does may hold a request up for longer than recomputing would, nor end one.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from typing_extensions import override

from superinfer_core.checkpoint.peers import Peer
from superinfer_core.checkpoint.restore import RestoreBounds, missing_tokens, restore_bounds
from superinfer_proto.limits import MESSAGE_OPTIONS
from superinfer_proto.slab import ENGINE_SLAB, STORE_SLAB, stream_of
from superinfer_proto.v1 import checkpoint_pb2_grpc, sidecar_pb2
from superinfer_sidecar.checkpoint.counters import CheckpointCounters, Restore
from superinfer_sidecar.checkpoint.holdings import Holdings
from superinfer_sidecar.checkpoint.increments import Increment, Increments
from superinfer_sidecar.checkpoint.replication import Replicator
from superinfer_sidecar.checkpoint.restore import Restorer
from superinfer_sidecar.checkpoint.service import CheckpointService
from superinfer_sidecar.checkpoint.settings import CheckpointSettings
from superinfer_sidecar.checkpoint.store import Store
from superinfer_sidecar.desk import Desk
from superinfer_sidecar.listener import DeskListener
from superinfer_sidecar.peers import Peers
from superinfer_sidecar.tracked import Stage, Tracked

_LOG = logging.getLogger(__name__)
_EXPIRE_EVERY_S: Final = 0.2
_CHANNEL_OPTIONS: Final = (
    *MESSAGE_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A peer that vanished with its machine sends no reset.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


class Checkpoints(DeskListener):
    """See the module."""

    def __init__(self, settings: CheckpointSettings, executor: str, peers: Peers, desk: Desk) -> None:
        self._settings = settings
        self._executor = executor
        self._desk = desk
        self.counters = CheckpointCounters()
        self.increments = Increments(settings.directory / ENGINE_SLAB, self.counters, self._on_new)
        self.store = Store(
            settings.directory / STORE_SLAB, settings.memory_bytes, self.counters, time.monotonic
        )
        open_channel = partial(peers.open_channel, options=_CHANNEL_OPTIONS)
        self.replicator = Replicator(settings, executor, self.increments, self.counters, open_channel)
        self._holdings = Holdings(self.increments, self.store)
        self._restorer = Restorer(
            self.store, self._holdings, self.counters, open_channel, layout=self._layout
        )
        self._service = CheckpointService(
            self.store,
            self._holdings,
            self.counters,
            admits=lambda context: peers.why_not_copy(context) or "",
            orphan_s=settings.orphan_s,
        )
        self._ending: dict[int, float] = {}
        self._restoring: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        desk.listener = self

    # --- life

    def add_to(self, server: Any) -> None:
        """Serve other sidecars; before the server starts."""
        checkpoint_pb2_grpc.add_CheckpointServicer_to_server(  # type: ignore[no-untyped-call]
            self._service, server
        )

    def start(self) -> None:
        """Begin to follow the engine."""
        self._settings.directory.mkdir(parents=True, exist_ok=True)
        self._task = asyncio.create_task(self._follow_for_ever())

    async def close(self) -> None:
        """Stop; what was saved stays in shared memory for whoever comes next."""
        tasks = [task for task in (self._task, *self._restoring.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.replicator.close()
        self.store.close()

    async def _follow_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        expired_s = loop.time()
        while True:
            await asyncio.sleep(self._settings.interval_ms / 1000)
            try:
                await self._follow()
                self.increments.poll()
                if loop.time() - expired_s >= _EXPIRE_EVERY_S:
                    expired_s = loop.time()
                    self._end_what_is_due()
                    self.store.expire()
                    self.increments.streams.prune(self.increments.has)
                    if not self._ending and not self._desk.book.by_id:
                        await self.increments.erase_for_dead_engine()
            except Exception:  # noqa: BLE001 - said below
                # A damaged file must not end what keeps the others safe.
                _LOG.exception("checkpoints could not be followed")

    async def _follow(self) -> None:
        await self.increments.follow()
        slab = self.increments.slab
        if slab is not None:
            await self.store.fit(slab.shape.layout, slab.shape.payload_bytes, self._settings.orphan_s)

    def _layout(self) -> str:
        return "" if self.store.slab is None else self.store.slab.shape.layout

    def _on_new(self, increments: list[Increment]) -> None:
        self.replicator.add(increments)

    def holders(self) -> list[str]:
        """Executors that hold blocks of requests of ours: this one, which outlives its engine, then peers."""
        own = [self._executor] if self.increments.holds_any else []
        return own + self.replicator.holders

    # --- news

    @override
    def peers(self, message: sidecar_pb2.PeerList) -> None:
        """The ingress has told of the pool."""
        self.replicator.peers(
            Peer(peer.executor, peer.address, tuple(peer.fault_domain)) for peer in message.peers
        )

    @override
    def admitted(self, request: Tracked) -> None:
        """A request is about to be queued: one that comes from elsewhere is restored first."""
        streams = _streams(request)
        for stream in streams:
            self._ending.pop(stream, None)
        holders = list(request.submit.checkpoint_holders)
        if not holders or not self._layout():
            return
        missing = self._missing_tokens(request, streams)
        model = self._desk.planner.steps.model
        bounds = restore_bounds(model.prefill_work_ms(missing)) if missing else None
        if bounds is None:
            own = self._holdings.of(self._layout(), streams)
            self.counters.restores[Restore.OWN if own.halves else Restore.CHEAP] += 1
            return
        request.restoring = True
        key = (request.request_id, request.attempt)
        self._restoring[key] = asyncio.create_task(self._restore(request, streams, holders, bounds))

    async def _restore(
        self, request: Tracked, streams: list[int], holders: list[str], bounds: RestoreBounds
    ) -> None:
        key = (request.request_id, request.attempt)
        try:
            await self._restorer.restore(key, streams, holders, bounds)
        finally:
            self._restoring.pop(key, None)
            request.restoring = False
        if request.stage is Stage.QUEUED:
            self._desk.dispatch()

    def _missing_tokens(self, request: Tracked, streams: list[int]) -> int:
        """What would have to be computed if nothing came from elsewhere."""
        engine = self._desk.engine
        if engine is None or not engine.info.block_size:
            return 0
        size = engine.info.block_size
        tokens = request.prompt_tokens + request.output_tokens // request.places
        layout, here = self._layout(), self._holdings
        return sum(
            missing_tokens(
                tokens,
                block_tokens=size,
                blocks=here.blocks(layout, stream),
                tail=here.has_tail(layout, stream),
            )
            for stream in streams
        )

    @override
    def left(self, request: Tracked, *, finished: bool) -> None:
        """A request has left the desk: its blocks go, at once when it is finished."""
        key = (request.request_id, request.attempt)
        task = self._restoring.pop(key, None)
        if task is not None:
            task.cancel()
        settings = self._settings
        after_s = settings.retain_s if finished else max(settings.retain_s, settings.orphan_s)
        due_s = time.monotonic() + after_s
        for stream in _streams(request):
            self.store.end(key, stream, after_s=after_s)
            self._ending[stream] = due_s
        if after_s <= 0:
            self._end_what_is_due()

    def _end_what_is_due(self) -> None:
        now_s = time.monotonic()
        due = [stream for stream, at_s in self._ending.items() if at_s <= now_s]
        if due:
            self._end(due)

    def _end(self, streams: Iterable[int]) -> None:
        over = list(streams)
        for stream in over:
            del self._ending[stream]
            self.store.end_everywhere(stream)
        self.increments.end(over)
        self.replicator.end(over)


def _streams(request: Tracked) -> list[int]:
    return [stream_of(request.request_id, choice) for choice in range(request.places)]
