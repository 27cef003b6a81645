import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from superinfer_executor.node_agent.wire import podresources_pb2 as wire
from superinfer_executor.node_agent.wire import podresources_pb2_grpc as rpc
from superinfer_kube.testing.fixtures import apiserver, superinfer_api  # noqa: F401


@pytest.fixture(scope="session")
def mock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A freshly built MOCK libnvidia-ml.so.1."""
    out = tmp_path_factory.mktemp("nvml")
    sources = Path(__file__).parents[3] / "gpumock" / "nvml"
    subprocess.run(["make", "--no-print-directory", "-C", sources, f"OUT={out}"], check=True)
    return out / "libnvidia-ml.so.1"


class FakePodResources(rpc.PodResourcesListerServicer):
    """The kubelet's pod-resources service with pods put in by hand."""

    def __init__(self) -> None:
        self.answer = wire.ListPodResourcesResponse()

    def hold(self, pod: str, resource: str, *device_ids: str) -> None:
        container = wire.ContainerResources(name="executor")
        container.devices.add(resource_name=resource, device_ids=device_ids)
        self.answer.pod_resources.add(name=pod, namespace="shop", containers=[container])

    async def List(self, request, context):  # noqa: N802
        return self.answer


@pytest.fixture
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], AbstractAsyncContextManager]:
    """Starts a fake kubelet; gives it and its socket."""

    @asynccontextmanager
    async def start() -> AsyncIterator[tuple[FakePodResources, Path]]:
        service = FakePodResources()
        server = grpc.aio.server()
        rpc.add_PodResourcesListerServicer_to_server(service, server)
        socket = tmp_path_factory.mktemp("k") / "k.sock"
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            yield service, socket
        finally:
            await server.stop(None)

    return start
