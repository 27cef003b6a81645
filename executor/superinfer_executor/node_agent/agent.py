"""The agent's loop: look, listen, publish what changed.

Promise: an event of the driver is published at once; what can only be looked at (recovery action, MIG
layout, who holds which device) is looked at on the node every `look_s`, which costs the API server nothing;
nothing is published that is not new. A failed publication is tried again until it succeeds or is out of
date. NVML is read in threads, one reading at a time; everything else runs on one event loop.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from superinfer_core.api.v1alpha1.nodetopology import NodeTopologyStatus
from superinfer_core.placement.health import DeviceEvent
from superinfer_core.placement.health_book import Damping, HealthBook, Signs, note_event, note_signs
from superinfer_executor.node_agent.pod_resources import Allocation, PodResourcesUnreachable
from superinfer_executor.node_agent.publication import Observed, dated, status_of
from superinfer_executor.node_agent.reading import DriverMissing, NodeReading
from superinfer_kube.errors import KubeError

_LOG = logging.getLogger(__name__)
_WAIT_MS: Final = 500
_AFTER_ERROR_S: Final = 2.0


class DeviceSource(Protocol):
    """NVML, or what stands in for it in a test."""

    def read(self) -> NodeReading:
        """The node now."""
        ...

    def wait(self, timeout_ms: int) -> DeviceEvent | None:
        """The next event; None when there was none in time."""
        ...


class Publisher(Protocol):
    """Where the status goes."""

    async def published(self) -> NodeTopologyStatus | None:
        """What an earlier run has published."""
        ...

    async def publish(self, status: NodeTopologyStatus) -> None:
        """Make the status this one."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the node is looked at, and how long faults are held against a device."""

    look_s: float = 2.0
    damping: Damping = field(default_factory=Damping)


class NodeAgent:
    """Watches one node until cancelled."""

    def __init__(
        self,
        source: DeviceSource,
        allocations: Callable[[NodeReading], Awaitable[tuple[Allocation, ...]]],
        publisher: Publisher,
        pace: Pace,
    ) -> None:
        self._source = source
        self._allocations = allocations
        self._publisher = publisher
        self._pace = pace
        self._book = HealthBook()
        self._events: asyncio.Queue[DeviceEvent] = asyncio.Queue()
        self._published: NodeTopologyStatus | None = None
        self._kubelet_away = False

    async def run(self) -> None:
        """Look, listen, publish; ends by cancellation, or with an error of the driver."""
        await self._look()  # events name GPUs by what was read
        self._published = await self._earlier()
        stopping = threading.Event()
        loop = asyncio.get_running_loop()
        listener = threading.Thread(
            target=self._listen, args=(loop, stopping), daemon=True, name="nvml-events"
        )
        listener.start()
        try:
            while True:
                await self._publish(await self._look())
                await self._pause()
        finally:
            stopping.set()
            await asyncio.to_thread(listener.join, 2 * _WAIT_MS / 1000)

    async def observe(self) -> Observed:
        """One look, for reports."""
        return await self._look()

    async def _look(self) -> Observed:
        node = await asyncio.to_thread(self._source.read)
        signs = [
            Signs(gpu.uuid, gpu.lost, gpu.action, gpu.rows_pending, gpu.rows_failed) for gpu in node.gpus
        ]
        self._book = note_signs(self._book, signs, time.time(), self._pace.damping)
        return Observed(node, self._book, await self._who_holds_what(node))

    async def _who_holds_what(self, node: NodeReading) -> tuple[Allocation, ...] | None:
        try:
            found = await self._allocations(node)
        except PodResourcesUnreachable as error:
            if not self._kubelet_away:
                _LOG.warning("pod resources unreachable: %s", error)
            self._kubelet_away = True
            return None
        self._kubelet_away = False
        return found

    async def _pause(self) -> None:
        """Until something happens, or it is time to look again; takes in all events there are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.look_s):
                self._take(await self._events.get())
        while not self._events.empty():
            self._take(self._events.get_nowait())

    def _take(self, event: DeviceEvent) -> None:
        where = "" if event.gi_id is None else f" instance {event.gi_id}"
        detail = event.xid if event.xid is not None else event.action
        _LOG.info("event of %s%s: %s %s", event.gpu_uuid, where, event.kind, detail)
        self._book = note_event(self._book, event, time.time())

    def _listen(self, loop: asyncio.AbstractEventLoop, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                event = self._source.wait(_WAIT_MS)
            except DriverMissing as error:
                _LOG.warning("waiting for events failed, will go on: %s", error)
                stopping.wait(_AFTER_ERROR_S)
                continue
            if event is not None and not stopping.is_set():
                loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def _earlier(self) -> NodeTopologyStatus | None:
        try:
            return await self._publisher.published()
        except (KubeError, ValueError) as error:
            _LOG.warning("what was published before cannot be read: %s", error)
            return None

    async def _publish(self, observed: Observed) -> None:
        status = status_of(observed)
        if self._published is not None and timeless(self._published) == timeless(status):
            return
        complete = dated(status, self._published, time.time())
        try:
            await self._publisher.publish(complete)
        except KubeError as error:
            _LOG.warning("not published, will try again: %s", error)
            return
        self._published = complete
        _LOG.info(
            "published: %s GPUs, %s healthy, %s instances, %d allocations",
            status.gpu_count,
            status.healthy_gpu_count,
            status.instance_count,
            len(status.allocations or ()),
        )


def timeless(status: NodeTopologyStatus) -> dict[str, object]:
    """What decides whether a status is news."""
    conditions = [
        condition.model_copy(update={"last_transition_time": None}) for condition in status.conditions or ()
    ]
    plain = status.model_copy(update={"observed_at": None, "conditions": conditions})
    document: dict[str, object] = plain.model_dump(mode="json", exclude_none=True)
    return document
