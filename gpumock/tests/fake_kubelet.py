"""A kubelet's side of the device plugin interface, over real Unix sockets.

As the real one: connects to the plugin inside Register, opens ListAndWatch, and removes every socket of its
directory when it starts.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc

from superinfer_gpumock.wire import deviceplugin_pb2 as wire
from superinfer_gpumock.wire import deviceplugin_pb2_grpc as rpc


class FakeKubelet(rpc.RegistrationServicer):
    """Knows the devices of every registered resource."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.devices: dict[str, dict[str, str]] = {}
        self.lists: dict[str, int] = {}
        self.registrations: list[str] = []
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._watches: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        for socket in self.directory.glob("*.sock"):
            socket.unlink()
        self._server = grpc.aio.server()
        rpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.directory / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
        assert self._server is not None
        await self._server.stop(None)
        self.devices, self._channels, self._watches = {}, {}, []

    async def Register(self, request, context):  # noqa: N802
        if request.version != "v1beta1" or "/" in request.endpoint:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unsupported")
        channel = grpc.aio.insecure_channel(f"unix:{self.directory / request.endpoint}")
        await rpc.DevicePluginStub(channel).GetDevicePluginOptions(wire.Empty(), timeout=5)
        self._channels[request.resource_name] = channel
        self._watches.append(asyncio.create_task(self._watch(request.resource_name, channel)))
        self.registrations.append(request.resource_name)
        return wire.Empty()

    async def _watch(self, resource: str, channel: grpc.aio.Channel) -> None:
        async for listed in rpc.DevicePluginStub(channel).ListAndWatch(wire.Empty()):
            async with self._changed:
                self.devices[resource] = {device.ID: device.health for device in listed.devices}
                self.lists[resource] = self.lists.get(resource, 0) + 1
                self._changed.notify_all()

    async def until(self, condition: Callable[[], bool], timeout_s: float = 10) -> None:
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    def plugin(self, resource: str) -> rpc.DevicePluginStub:
        return rpc.DevicePluginStub(self._channels[resource])

    def healthy(self, resource: str) -> set[str]:
        return {name for name, health in self.devices.get(resource, {}).items() if health == "Healthy"}
