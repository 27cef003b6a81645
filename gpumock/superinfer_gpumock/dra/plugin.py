"""The kubelet's side of the MOCK DRA driver: registration, and preparing claims.

Promise: preparing is idempotent and answers every claim by itself; what is prepared is what the API server
says is allocated, looked up by the claim's name and checked by its uid. One event loop.
"""

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from typing_extensions import override

from superinfer_gpumock.dra.claims import ClaimUnusable, Prepared, cdi_spec, prepare
from superinfer_gpumock.dra.slices import DRIVER, uuids
from superinfer_gpumock.node import MockNode
from superinfer_gpumock.wire import dra_pb2 as wire
from superinfer_gpumock.wire import dra_pb2_grpc as rpc
from superinfer_gpumock.wire import registration_pb2 as registration
from superinfer_gpumock.wire import registration_pb2_grpc as registration_rpc
from superinfer_kube.errors import KubeError

_LOG = logging.getLogger(__name__)

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICE: Final = "v1.DRAPlugin"

ReadClaim = Callable[[str, str], Awaitable[Mapping[str, Any]]]
"""Namespace and name to the ResourceClaim; raises KubeError."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where things lie on the node."""

    registry: Path = Path("/var/lib/kubelet/plugins_registry")
    plugins: Path = Path("/var/lib/kubelet/plugins")
    cdi: Path = Path("/var/run/cdi")

    @property
    def registration_socket(self) -> Path:
        """Found by the kubelet, which asks there what the plugin is."""
        return self.registry / f"{DRIVER}-reg.sock"

    @property
    def socket(self) -> Path:
        """Where claims are prepared."""
        return self.plugins / DRIVER / "dra.sock"

    def cdi_file(self, uid: str) -> Path:
        """The CDI file of a claim."""
        return self.cdi / f"k8s.{DRIVER}-mock-claim_{uid}.json"


class Registration(registration_rpc.RegistrationServicer):
    """Says what this plugin is."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.error: str | None = None
        """What the kubelet said was wrong; "" once it has accepted."""

    @override
    async def GetInfo(
        self, request: registration.InfoRequest, context: grpc.aio.ServicerContext
    ) -> registration.PluginInfo:
        """A DRA driver of the v1 interface."""
        return registration.PluginInfo(
            type=PLUGIN_TYPE, name=DRIVER, endpoint=str(self._places.socket), supported_versions=[SERVICE]
        )

    @override
    async def NotifyRegistrationStatus(
        self, request: registration.RegistrationStatus, context: grpc.aio.ServicerContext
    ) -> registration.RegistrationStatusResponse:
        """The kubelet's verdict."""
        self.error = "" if request.plugin_registered else request.error or "refused"
        if self.error:
            _LOG.error("MOCK DRA driver not registered: %s", self.error)
        else:
            _LOG.info("MOCK DRA driver registered with the kubelet")
        return registration.RegistrationStatusResponse()


class MockDraDriver(rpc.DRAPluginServicer):
    """Prepares claims of the node's devices."""

    def __init__(self, node: Callable[[], MockNode | None], read_claim: ReadClaim, places: Places) -> None:
        self._node = node
        self._read_claim = read_claim
        self._places = places

    @override
    async def NodePrepareResources(
        self, request: wire.NodePrepareResourcesRequest, context: grpc.aio.ServicerContext
    ) -> wire.NodePrepareResourcesResponse:
        """Devices of every claim, or why not."""
        answer = wire.NodePrepareResourcesResponse()
        for claim in request.claims:
            result = answer.claims[claim.uid]
            try:
                prepared = await self._prepare(claim)
            except (ClaimUnusable, KubeError, OSError) as error:
                result.error = f"MOCK DRA driver: {error}"
                _LOG.warning("claim %s/%s not prepared: %s", claim.namespace, claim.name, error)
                continue
            for item in prepared:
                node = self._node()
                assert node is not None
                result.devices.add(
                    request_names=[item.request],
                    pool_name=node.name,
                    device_name=item.device,
                    cdi_device_ids=[item.cdi_id],
                )
            ids = ", ".join(item.uuid for item in prepared)
            _LOG.info("MOCK claim %s/%s prepared: %s", claim.namespace, claim.name, ids)
        return answer

    async def _prepare(self, claim: wire.Claim) -> list[Prepared]:
        node = self._node()
        if node is None:
            raise ClaimUnusable("this node is not described")
        document = await self._read_claim(claim.namespace, claim.name)
        prepared = prepare(document, claim.uid, node.name, uuids(node))
        target = self._places.cdi_file(claim.uid)
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}")
        aside.write_text(json.dumps(cdi_spec(prepared, claim.uid)))
        aside.replace(target)
        return prepared

    @override
    async def NodeUnprepareResources(
        self, request: wire.NodeUnprepareResourcesRequest, context: grpc.aio.ServicerContext
    ) -> wire.NodeUnprepareResourcesResponse:
        """Forget the claims; also those that were never prepared."""
        answer = wire.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self._places.cdi_file(claim.uid).unlink(missing_ok=True)
            answer.claims[claim.uid].error = ""
            _LOG.info("MOCK claim %s/%s unprepared", claim.namespace, claim.name)
        return answer


@contextlib.asynccontextmanager
async def serving(driver: MockDraDriver, places: Places) -> AsyncIterator[Registration]:
    """The driver on its sockets; the registration socket last, because the kubelet looks at once."""
    for socket in (places.socket, places.registration_socket):
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
    server, registrar = grpc.aio.server(), grpc.aio.server()
    rpc.add_DRAPluginServicer_to_server(driver, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{places.socket}")
    told = Registration(places)
    registration_rpc.add_RegistrationServicer_to_server(told, registrar)  # type: ignore[no-untyped-call]
    registrar.add_insecure_port(f"unix:{places.registration_socket}")
    await server.start()
    try:
        await registrar.start()
        yield told
    finally:
        await registrar.stop(None)
        places.registration_socket.unlink(missing_ok=True)
        await server.stop(None)
