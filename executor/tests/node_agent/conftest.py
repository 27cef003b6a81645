import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from superinfer_core.api.v1alpha1.nodetopology import NodeTopologyStatus
from superinfer_executor.node_agent.wire import podresources_pb2 as wire
from superinfer_executor.node_agent.wire import podresources_pb2_grpc as rpc
from superinfer_gpumock.live import LiveNode
from superinfer_kube.testing.fixtures import apiserver, superinfer_api  # noqa: F401


@pytest.fixture(scope="session")
def mock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A freshly built MOCK libnvidia-ml.so.1."""
    out = tmp_path_factory.mktemp("nvml")
    sources = Path(__file__).parents[3] / "gpumock" / "nvml"
    subprocess.run(["make", "--no-print-directory", "-C", sources, f"OUT={out}"], check=True)
    return out / "libnvidia-ml.so.1"


@pytest.fixture
def command(mock_library: Path) -> Callable[..., Awaitable[tuple[int, str, str]]]:
    """The agent's command over the MOCK library, in a process of its own: exit code, output, errors."""

    async def run(live: LiveNode, *arguments: str) -> tuple[int, str, str]:
        library = (
            () if any(word.startswith("--library") for word in arguments) else (f"--library={mock_library}",)
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "superinfer_executor.node_agent",
            *arguments,
            *library,
            env=os.environ | {"SUPERINFER_GPUMOCK_NODE": str(live.flat_file)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    return run


@pytest.fixture
def look(
    command: Callable[..., Awaitable[tuple[int, str, str]]],
) -> Callable[..., Awaitable[NodeTopologyStatus]]:
    """What the agent sees of a described node."""

    async def run(live: LiveNode, socket: Path | str = "/nonexistent") -> NodeTopologyStatus:
        code, out, err = await command(live, "--once", "--json", f"--pod-resources={socket}")
        assert code == 0, err
        return NodeTopologyStatus.model_validate(json.loads(out))

    return run


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
