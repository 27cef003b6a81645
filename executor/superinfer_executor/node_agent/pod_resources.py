"""Which container was given which device, from the kubelet's pod-resources socket.

Promise: classic devices under their resource, DRA devices under their driver, each by the UUID of the
device. The socket is local; asking it costs the API server nothing. One event loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from superinfer_executor.node_agent.reading import NodeReading
from superinfer_executor.node_agent.wire import podresources_pb2 as wire
from superinfer_executor.node_agent.wire import podresources_pb2_grpc as rpc

DEFAULT_SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
RESOURCE_PREFIX: Final = "nvidia.com/"
DRA_DRIVER: Final = "gpu.nvidia.com"
_CALL_S: Final = 5.0
_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024


class PodResourcesUnreachable(RuntimeError):
    """The kubelet does not answer."""


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """Devices of one resource in one container."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


class PodResources:
    """The kubelet of this node."""

    def __init__(self, socket: Path = DEFAULT_SOCKET) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket}",
            options=(
                ("grpc.default_authority", "localhost"),
                ("grpc.enable_http_proxy", 0),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ),
        )

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def allocations(self, node: NodeReading) -> tuple[Allocation, ...]:
        """All allocations of GPUs and instances, in order; raises PodResourcesUnreachable."""
        stub = rpc.PodResourcesListerStub(self._channel)  # type: ignore[no-untyped-call]
        try:
            answer = await stub.List(wire.ListPodResourcesRequest(), timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            raise PodResourcesUnreachable(str(error.details())) from error
        return allocations_in(answer, node)


def allocations_in(answer: wire.ListPodResourcesResponse, node: NodeReading) -> tuple[Allocation, ...]:
    """What an answer says about GPUs; pure."""
    found: list[Allocation] = []
    names = dra_devices(node)
    for pod in answer.pod_resources:
        for container in pod.containers:
            by_resource: dict[str, list[str]] = {}
            for devices in container.devices:
                if devices.resource_name.startswith(RESOURCE_PREFIX):
                    by_resource.setdefault(devices.resource_name, []).extend(devices.device_ids)
            for claim in container.dynamic_resources:
                for resource in claim.claim_resources:
                    if resource.driver_name == DRA_DRIVER:
                        device = names.get(resource.device_name, resource.device_name)
                        by_resource.setdefault(DRA_DRIVER, []).append(device)
            found += [
                Allocation(pod.namespace, pod.name, container.name, resource, tuple(sorted(ids)))
                for resource, ids in by_resource.items()
                if ids
            ]
    return tuple(sorted(found))


def dra_devices(node: NodeReading) -> Mapping[str, str]:
    """UUIDs by the names the DRA driver gives to devices (`gpu-0`, `gpu-0-mig-3g40gb-9-4`)."""
    names: dict[str, str] = {}
    for gpu in node.gpus:
        names[f"gpu-{gpu.index}"] = gpu.uuid
        profiles = {profile.profile_id: profile.name for profile in gpu.profiles}
        for instance in gpu.instances:
            shape = profiles.get(instance.profile_id, "").replace(".", "").replace("+", "-")
            name = f"gpu-{gpu.index}-mig-{shape}-{instance.profile_id}-{instance.start}"
            names[name] = instance.uuid
    return names
