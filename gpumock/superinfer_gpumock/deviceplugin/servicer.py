"""The gRPC service of one resource: what the kubelet asks a device plugin.

Promise: ListAndWatch sends the full list at once and again on every change, to every stream. One event loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

import grpc
from typing_extensions import override

from superinfer_gpumock.deviceplugin.offer import Device, preferred
from superinfer_gpumock.node import MockNode
from superinfer_gpumock.wire import deviceplugin_pb2 as wire
from superinfer_gpumock.wire import deviceplugin_pb2_grpc as rpc

_LOG = logging.getLogger(__name__)

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
MOCK_MARK: Final = "SUPERINFER_MOCK_GPUS"


class MockDevicePlugin(rpc.DevicePluginServicer):
    """Devices of one resource; change them with `offer`."""

    def __init__(self, resource: str, devices: tuple[Device, ...], node: Callable[[], MockNode]) -> None:
        self.resource: Final = resource
        self._devices = devices
        self._node = node
        self._changed = asyncio.Event()

    def offer(self, devices: tuple[Device, ...]) -> bool:
        """Replace the list; True when it was another."""
        if devices == self._devices:
            return False
        self._devices = devices
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return True

    @override
    async def GetDevicePluginOptions(
        self, request: wire.Empty, context: grpc.aio.ServicerContext
    ) -> wire.DevicePluginOptions:
        """Preferred allocation is offered, PreStartContainer is not needed."""
        return wire.DevicePluginOptions(get_preferred_allocation_available=True)

    @override
    async def ListAndWatch(
        self, request: wire.Empty, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[wire.ListAndWatchResponse]:
        """The list, now and whenever it changes."""
        while True:
            changed = self._changed
            yield wire.ListAndWatchResponse(devices=[_on_wire(device) for device in self._devices])
            await changed.wait()

    @override
    async def GetPreferredAllocation(
        self, request: wire.PreferredAllocationRequest, context: grpc.aio.ServicerContext
    ) -> wire.PreferredAllocationResponse:
        """Linked GPUs together, instances of few GPUs."""
        answer = wire.PreferredAllocationResponse()
        for asked in request.container_requests:
            chosen = preferred(
                self._node(),
                available=list(asked.available_deviceIDs),
                must_include=list(asked.must_include_deviceIDs),
                size=asked.allocation_size,
            )
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    @override
    async def Allocate(
        self, request: wire.AllocateRequest, context: grpc.aio.ServicerContext
    ) -> wire.AllocateResponse:
        """Make the devices visible the way NVIDIA's plugin does; refused for devices that are not ours."""
        ours = {device.id for device in self._devices}
        answer = wire.AllocateResponse()
        for asked in request.container_requests:
            strange = sorted(set(asked.devices_ids) - ours)
            if strange:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"MOCK {self.resource}: no such device: {', '.join(strange)}",
                )
            envs = {VISIBLE_DEVICES: ",".join(asked.devices_ids), MOCK_MARK: self.resource}
            answer.container_responses.add(envs=envs)
            _LOG.info("MOCK %s: allocated %s", self.resource, ",".join(asked.devices_ids))
        return answer

    @override
    async def PreStartContainer(
        self, request: wire.PreStartContainerRequest, context: grpc.aio.ServicerContext
    ) -> wire.PreStartContainerResponse:
        """Nothing to prepare."""
        return wire.PreStartContainerResponse()


def _on_wire(device: Device) -> wire.Device:
    return wire.Device(
        ID=device.id,
        health="Healthy" if device.healthy else "Unhealthy",
        topology=wire.TopologyInfo(nodes=[wire.NUMANode(ID=device.numa_node)]),
    )
