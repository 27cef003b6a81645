import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from superinfer_core.api.v1alpha1.nodetopology import NodeTopologyStatus
from superinfer_core.placement.health import DeviceEvent, EventKind
from superinfer_core.placement.health_book import Damping
from superinfer_core.placement.node import HealthState, LinkType, RecoveryAction
from superinfer_executor.node_agent.agent import NodeAgent, Pace
from superinfer_executor.node_agent.pod_resources import Allocation, PodResourcesUnreachable
from superinfer_executor.node_agent.reading import (
    DriverMissing,
    GpuReading,
    InstanceReading,
    LinkReading,
    NodeReading,
)
from superinfer_kube.errors import Unavailable


def gpu(index: int, *, mig: bool = False) -> GpuReading:
    made = (InstanceReading("MIG-a", 1, 9, 0, 4), InstanceReading("MIG-b", 2, 9, 4, 4)) if mig else ()
    return GpuReading(
        f"GPU-{index}", index, "NVIDIA H200", 143771, "0000:17:00.0", 0, mig, instances=made,
        action=RecoveryAction.NONE,
    )  # fmt: skip


class Node:
    """A node in the place of NVML."""

    def __init__(self) -> None:
        links = (LinkReading(0, 1, LinkType.NVLINK, 12),)
        self.reading = NodeReading("580.0", (gpu(0), gpu(1), gpu(2, mig=True)), links)
        self.events: queue.Queue[DeviceEvent | Exception] = queue.Queue()
        self.reads = 0

    def read(self) -> NodeReading:
        self.reads += 1
        return self.reading

    def wait(self, timeout_ms: int) -> DeviceEvent | None:
        try:
            event = self.events.get(timeout=0.02)
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        return event

    def change(self, index: int, **fields: object) -> None:
        gpus = tuple(replace(gpu, **fields) if gpu.index == index else gpu for gpu in self.reading.gpus)
        self.reading = replace(self.reading, gpus=gpus)


class Board:
    """Where statuses are published; `fails` publications are refused first."""

    def __init__(self) -> None:
        self.statuses: list[NodeTopologyStatus] = []
        self.fails = 0
        self.refused = 0
        self._changed = asyncio.Condition()

    async def published(self) -> NodeTopologyStatus | None:
        return self.statuses[-1] if self.statuses else None

    async def publish(self, status: NodeTopologyStatus) -> None:
        async with self._changed:
            if self.fails:
                self.fails -= 1
                self.refused += 1
                raise Unavailable("away")
            self.statuses.append(status)
            self._changed.notify_all()

    async def until(self, condition: Callable[[NodeTopologyStatus], bool]) -> NodeTopologyStatus:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: bool(self.statuses) and condition(self.statuses[-1]))
        return self.statuses[-1]


def state(status: NodeTopologyStatus, uuid: str) -> HealthState:
    for gpu in status.gpus or ():
        if gpu.uuid == uuid:
            return gpu.health.state
        for made in gpu.instances or ():
            if made.uuid == uuid:
                assert made.health is not None
                return made.health.state
    raise KeyError(uuid)


class Rig:
    def __init__(self) -> None:
        self.node = Node()
        self.board = Board()
        self.holds: list[Allocation] | None = []

    async def allocations(self, node: NodeReading) -> tuple[Allocation, ...]:
        if self.holds is None:
            raise PodResourcesUnreachable("no socket")
        return tuple(self.holds)

    @contextlib.asynccontextmanager
    async def running(self, hold_s: float = 0.0) -> AsyncIterator[None]:
        agent = NodeAgent(self.node, self.allocations, self.board, Pace(0.03, Damping(hold_s=hold_s)))
        task = asyncio.create_task(agent.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_nothing_new_is_not_published_again(rig: Rig) -> None:
    async with rig.running():
        await rig.board.until(lambda _: True)
        looked = rig.node.reads
        async with asyncio.timeout(10):
            while rig.node.reads < looked + 5:
                await asyncio.sleep(0.01)
    assert len(rig.board.statuses) == 1
    async with rig.running():  # a restart finds what it would say
        looked = rig.node.reads
        async with asyncio.timeout(10):
            while rig.node.reads < looked + 3:
                await asyncio.sleep(0.01)
    assert len(rig.board.statuses) == 1


async def test_an_xid_on_an_instance_marks_exactly_that_instance_and_heals(rig: Rig) -> None:
    async with rig.running(hold_s=0.3):
        await rig.board.until(lambda _: True)
        rig.node.events.put(DeviceEvent(EventKind.XID, "GPU-2", 2, 94))
        sick = await rig.board.until(lambda status: state(status, "MIG-b") is HealthState.UNHEALTHY)
        assert [state(sick, uuid) for uuid in ("MIG-a", "GPU-2", "GPU-0")] == [HealthState.HEALTHY] * 3
        await rig.board.until(lambda status: state(status, "MIG-b") is HealthState.HEALTHY)


async def test_a_reset_is_followed_through(rig: Rig) -> None:
    async with rig.running(hold_s=0.05):
        await rig.board.until(lambda _: True)
        rig.node.events.put(DeviceEvent(EventKind.XID, "GPU-2", None, 48))
        rig.node.change(2, action=RecoveryAction.GPU_RESET)
        sick = await rig.board.until(lambda status: state(status, "GPU-2") is HealthState.UNHEALTHY)
        assert state(sick, "MIG-a") is HealthState.UNHEALTHY
        rig.node.change(2, action=RecoveryAction.NONE)
        well = await rig.board.until(lambda status: state(status, "GPU-2") is HealthState.HEALTHY)
        assert state(well, "MIG-a") is HealthState.HEALTHY


async def test_a_link_error_degrades_the_partner_only(rig: Rig) -> None:
    async with rig.running(hold_s=60):
        await rig.board.until(lambda _: True)
        rig.node.events.put(DeviceEvent(EventKind.XID, "GPU-0", None, 74))
        sick = await rig.board.until(lambda status: state(status, "GPU-0") is HealthState.UNHEALTHY)
        assert state(sick, "GPU-1") is HealthState.DEGRADED
        assert state(sick, "GPU-2") is HealthState.HEALTHY


async def test_a_lost_gpu_keeps_its_facts(rig: Rig) -> None:
    async with rig.running(hold_s=60):
        await rig.board.until(lambda _: True)
        rig.node.change(1, lost=True)
        sick = await rig.board.until(lambda status: state(status, "GPU-1") is HealthState.UNHEALTHY)
        assert [gpu.memory_mib for gpu in sick.gpus or ()] == [143771] * 3
        assert (sick.healthy_gpu_count, (sick.conditions or [])[0].reason) == (2, "UnhealthyGPU")


async def test_an_api_server_that_is_away_gets_the_latest_when_it_is_back(rig: Rig) -> None:
    rig.board.fails = 3
    async with rig.running(hold_s=60):
        rig.node.events.put(DeviceEvent(EventKind.XID, "GPU-0", None, 79))
        status = await rig.board.until(lambda status: state(status, "GPU-0") is HealthState.UNHEALTHY)
    assert status.gpu_count == 3
    assert rig.board.refused == 3


async def test_events_go_on_after_nvml_failed_to_tell_some(rig: Rig) -> None:
    async with rig.running(hold_s=60):
        await rig.board.until(lambda _: True)
        rig.node.events.put(DriverMissing("interrupted"))
        rig.node.events.put(DeviceEvent(EventKind.XID, "GPU-1", None, 79))
        await rig.board.until(lambda status: state(status, "GPU-1") is HealthState.UNHEALTHY)


async def test_a_new_holder_is_published(rig: Rig) -> None:
    async with rig.running():
        await rig.board.until(lambda status: not status.allocations)
        rig.holds = [Allocation("shop", "p-0-1", "executor", "nvidia.com/gpu", ("GPU-1",))]
        status = await rig.board.until(lambda status: bool(status.allocations))
        assert [item.pod for item in status.allocations or ()] == ["p-0-1"]
        rig.holds = None
        status = await rig.board.until(lambda status: (status.conditions or [])[0].status == "False")
        assert (status.conditions or [])[0].reason == "PodResourcesUnreachable"


async def test_times_change_only_with_what_they_are_of(rig: Rig) -> None:
    async with rig.running(hold_s=60):
        first = await rig.board.until(lambda _: True)
        rig.node.events.put(DeviceEvent(EventKind.XID, "GPU-0", None, 79))
        second = await rig.board.until(lambda status: state(status, "GPU-0") is HealthState.UNHEALTHY)
    before, after = (first.conditions or [])[0], (second.conditions or [])[0]
    assert (before.status, after.status) == ("True", "True")
    assert before.last_transition_time == after.last_transition_time
