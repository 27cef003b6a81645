"""Keeps one resource known to the kubelet: serves, registers, and does both again after its restart.

A restarting kubelet removes every socket of its directory, so a missing socket of ours or a new
kubelet.sock means that we are forgotten. Noticed by looking at the two files twice a second. One task per
resource.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

import grpc

from superinfer_gpumock.deviceplugin.servicer import MockDevicePlugin
from superinfer_gpumock.wire import deviceplugin_pb2 as wire
from superinfer_gpumock.wire import deviceplugin_pb2_grpc as rpc

_LOG = logging.getLogger(__name__)

API_VERSION: Final = "v1beta1"
DEFAULT_DIRECTORY: Final = Path("/var/lib/kubelet/device-plugins")
KUBELET_SOCKET: Final = "kubelet.sock"
_LOOK_S: Final = 0.5
_CALL_S: Final = 5.0
_OPTIONS: Final = (("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0))


def endpoint_of(resource: str) -> str:
    """File name of a resource's socket."""
    return f"superinfer-gpumock-{resource.replace('/', '-')}.sock"


class Registrar:
    """Serves and registers one plugin until cancelled."""

    def __init__(self, plugin: MockDevicePlugin, directory: Path) -> None:
        self._plugin = plugin
        self._directory = directory
        self._socket = directory / endpoint_of(plugin.resource)

    async def run(self) -> None:
        """Serve and stay registered; ends only by cancellation."""
        while True:
            try:
                await self._serve_once()
            except (grpc.aio.AioRpcError, OSError, RuntimeError) as error:
                _LOG.warning("MOCK %s: not registered, will retry: %s", self._plugin.resource, _words(error))
            await asyncio.sleep(_LOOK_S)

    async def _serve_once(self) -> None:
        self._socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        rpc.add_DevicePluginServicer_to_server(self._plugin, server)  # type: ignore[no-untyped-call]
        server.add_insecure_port(f"unix:{self._socket}")
        await server.start()
        try:
            ours = _inode(self._socket)
            kubelet = _inode(self._directory / KUBELET_SOCKET)
            await self._register()
            while ours is not None and _inode(self._socket) == ours:
                await asyncio.sleep(_LOOK_S)
                if _inode(self._directory / KUBELET_SOCKET) != kubelet:
                    break
            _LOG.info("MOCK %s: the kubelet was restarted, registering again", self._plugin.resource)
        finally:
            await server.stop(grace=None)

    async def _register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=_OPTIONS) as own:
            stub = rpc.DevicePluginStub(own)  # type: ignore[no-untyped-call]
            await stub.GetDevicePluginOptions(wire.Empty(), timeout=_CALL_S)
        kubelet = f"unix:{self._directory / KUBELET_SOCKET}"
        async with grpc.aio.insecure_channel(kubelet, options=_OPTIONS) as channel:
            registration = rpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            await registration.Register(
                wire.RegisterRequest(
                    version=API_VERSION,
                    endpoint=self._socket.name,
                    resource_name=self._plugin.resource,
                    options=wire.DevicePluginOptions(get_preferred_allocation_available=True),
                ),
                timeout=_CALL_S,
            )
        _LOG.info("MOCK %s: registered with the kubelet", self._plugin.resource)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _words(error: Exception) -> str:
    return str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else str(error)
