"""The gRPC server on its Unix socket, with health and reflection. Event loop only."""

import contextlib
import os
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from superinfer_executor.serving.service import EngineService
from superinfer_proto.limits import MESSAGE_OPTIONS
from superinfer_proto.v1 import engine_pb2, engine_pb2_grpc

SERVICE_NAME: Final = engine_pb2.DESCRIPTOR.services_by_name["Engine"].full_name


class EngineServer:
    """A started server."""

    def __init__(self, server: Any, health: Any, socket: Path) -> None:
        self._server = server
        self._health = health
        self._socket = socket
        self._inode = socket.stat().st_ino

    async def not_serving(self) -> None:
        """Health says so from now on; streams go on."""
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        """Close every stream and remove the socket."""
        await self._server.stop(grace=0.2)
        with contextlib.suppress(FileNotFoundError):
            # A successor may have put its own socket there already.
            if self._socket.stat().st_ino == self._inode:
                self._socket.unlink()


async def start_server(service: EngineService, socket: Path) -> EngineServer:
    """Serve on the socket, ours alone (mode 0600); a stale socket file is replaced."""
    _make_room(socket)
    server = grpc.aio.server(options=MESSAGE_OPTIONS)
    engine_pb2_grpc.add_EngineServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    health = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    for name in ("", SERVICE_NAME):
        await health.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection((SERVICE_NAME, reflection.SERVICE_NAME), server)
    mask = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{socket}")
    finally:
        os.umask(mask)
    await server.start()
    return EngineServer(server, health, socket)


def _make_room(socket: Path) -> None:
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
