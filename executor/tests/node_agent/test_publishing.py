"""The whole agent in a process of its own: MOCK NVML and a fake kubelet below, a real API server above."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from superinfer_gpumock.examples import example
from superinfer_gpumock.faults import Failure, fail, recover
from superinfer_gpumock.live import LiveNode
from superinfer_kube.client import KubeClient
from superinfer_kube.informer import Change, Informer
from superinfer_kube.resources import NODE_TOPOLOGIES, NODES
from superinfer_kube.testing.apiserver import ApiServer

pytestmark = pytest.mark.apiserver

Kubelet = Callable[[], AbstractAsyncContextManager]
NODE = "agent-worker"


async def until(
    changes: AsyncIterator[Change[dict[str, Any]]], condition: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The next published status for which the condition holds; none of those in between is missed."""
    async with asyncio.timeout(30):
        async for change in changes:
            status = (change.object or {}).get("status")
            if status and condition(status):
                return dict(change.object or {})
    raise AssertionError


def health(status: dict[str, Any], gpu: int, instance: int | None = None) -> str:
    found = status["gpus"][gpu]
    return str((found if instance is None else found["instances"][instance])["health"]["state"])


async def test_the_agent_publishes_faults_and_recovery_to_the_cluster(
    tmp_path: Path, mock_library: Path, superinfer_api: ApiServer, kubelet: Kubelet
) -> None:
    live = LiveNode(tmp_path / "live")
    live.install(example("h100-mixed-mig"), NODE)
    gpus = live.read()[1].gpus
    client = KubeClient.connect(field_manager="test", kubeconfig=superinfer_api.kubeconfig)
    node = await client.apply(NODES, {"metadata": {"name": NODE}})
    changes = Informer(client, NODE_TOPOLOGIES, dict, fields=f"metadata.name={NODE}").changes()
    async with kubelet() as (service, socket):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "superinfer_executor.node_agent", f"--node-name={NODE}",
            f"--library={mock_library}", f"--pod-resources={socket}", "--look-s=0.2", "--hold-s=0.5",
            f"--kubeconfig={superinfer_api.kubeconfig}",
            env=os.environ | {"SUPERINFER_GPUMOCK_NODE": str(live.flat_file)},
        )  # fmt: skip
        try:
            first = await until(changes, lambda status: status["gpuCount"] == 4)
            assert first["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
            managers = {entry["manager"] for entry in first["metadata"]["managedFields"]}
            assert managers == {"superinfer-node-agent"}

            gi_id = gpus[1].instances[2].gi_id
            live.edit(lambda described: fail(described, Failure(gpu=1, gi_id=gi_id, xid=94)))
            sick = (await until(changes, lambda status: health(status, 1, 2) == "Unhealthy"))["status"]
            assert [health(sick, 1, at) for at in (0, 1, 3)] == ["Healthy"] * 3
            assert sick["gpus"][1]["instances"][2]["health"]["xid"] == 94
            await until(changes, lambda status: health(status, 1, 2) == "Healthy")

            live.edit(lambda described: fail(described, Failure(gpu=3, xid=79, lost=True)))
            lost = (await until(changes, lambda status: health(status, 3) == "Unhealthy"))["status"]
            assert lost["healthyGpuCount"] == 3
            live.edit(lambda described: recover(described, 3))
            await until(changes, lambda status: status["healthyGpuCount"] == 4)

            service.hold("triage-0-1", "nvidia.com/gpu", gpus[3].uuid)
            held = await until(changes, lambda status: bool(status.get("allocations")))
            assert held["status"]["allocations"][0]["deviceIDs"] == [gpus[3].uuid]

            await client.delete(NODE_TOPOLOGIES, NODE)
            live.edit(lambda described: fail(described, Failure(gpu=0, xid=48)))
            await until(changes, lambda status: health(status, 0) == "Unhealthy")
        finally:
            process.terminate()
            assert await process.wait() == 0
            await client.close()
