"""The agent's command over the MOCK library: real pynvml, real gRPC, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from superinfer_core.api.v1alpha1.nodetopology import NodeTopologyStatus
from superinfer_core.placement.node import HealthState, LinkType, RecoveryAction
from superinfer_gpumock.dra.slices import device_name
from superinfer_gpumock.examples import NAMES, example
from superinfer_gpumock.faults import Failure, fail
from superinfer_gpumock.live import LiveNode

Kubelet = Callable[[], AbstractAsyncContextManager]
Look = Callable[..., Awaitable[NodeTopologyStatus]]
Command = Callable[..., Awaitable[tuple[int, str, str]]]


def installed(tmp_path: Path, name: str) -> LiveNode:
    live = LiveNode(tmp_path / "live")
    live.install(example(name), "worker")
    return live


@pytest.mark.parametrize("name", NAMES)
async def test_the_status_is_the_described_node(name: str, tmp_path: Path, look: Look) -> None:
    live = installed(tmp_path, name)
    node = live.read()[1]
    status = await look(live)
    assert status.source == "Mock"
    assert status.product == node.product.label
    assert status.gpu_count == status.healthy_gpu_count == len(node.gpus)
    assert status.gpus is not None
    for seen, gpu in zip(status.gpus, node.gpus, strict=True):
        assert (seen.uuid, seen.index, seen.numa_node) == (gpu.uuid, gpu.index, gpu.numa_node)
        assert (seen.memory_mib, seen.mig_enabled) == (node.product.memory_mib, gpu.mig_enabled)
        assert {profile.name: profile.starts for profile in seen.profiles or ()} == {
            profile.name: list(profile.starts) for profile in node.product.mig_profiles
        }
        assert [(made.uuid, made.profile, made.start, made.size) for made in seen.instances or ()] == [
            (made.uuid, made.profile.name, made.start, made.profile.memory_slices) for made in gpu.instances
        ]


async def test_bridged_pairs_are_links_of_their_own_and_the_rest_is_pci(tmp_path: Path, look: Look) -> None:
    live = installed(tmp_path, "a100-pcie-bridged")
    index = {gpu.uuid: gpu.index for gpu in live.read()[1].gpus}
    links = (await look(live)).links or []
    linked = {
        (*sorted((index[link.a], index[link.b])), link.count) for link in links if link.type == "NVLink"
    }
    assert linked == {(0, 2, 12), (1, 3, 12), (4, 5, 12), (6, 7, 12)}
    assert len(links) == 28
    assert {link.type for link in links} == {LinkType.NVLINK, LinkType.NODE, LinkType.SYS}


async def test_switched_gpus_are_linked_to_each_other(tmp_path: Path, look: Look) -> None:
    status = await look(installed(tmp_path, "b200-fabric"))
    assert {(link.type, link.count) for link in status.links or ()} == {(LinkType.NVSWITCH, 18)}
    assert {(gpu.fabric.cluster_uuid, gpu.fabric.clique_id) for gpu in status.gpus or () if gpu.fabric} == {
        ("7b968a6d-c8aa-45e1-9e07-e1e51be99c31", 1)
    }
    assert all(gpu.nvlink_switch for gpu in status.gpus or ())


async def test_what_can_be_read_of_a_sick_gpu_is_published(tmp_path: Path, look: Look) -> None:
    live = installed(tmp_path, "h100-mixed-mig")
    live.edit(lambda described: fail(described, Failure(gpu=0, xid=48)))
    status = await look(live)
    assert status.gpus is not None
    health = status.gpus[0].health
    assert (health.state, health.recovery_action) == (HealthState.UNHEALTHY, RecoveryAction.GPU_RESET)
    assert {made.health.state for made in status.gpus[0].instances or () if made.health} == {
        HealthState.UNHEALTHY
    }
    assert [gpu.health.state for gpu in status.gpus[1:]] == [HealthState.HEALTHY] * 3
    assert status.healthy_gpu_count == 3


async def test_a_gpu_that_never_answered_makes_the_facts_incomplete(
    tmp_path: Path, look: Look, kubelet: Kubelet
) -> None:
    live = installed(tmp_path, "h200-nvswitch")
    live.edit(lambda described: fail(described, Failure(gpu=2, lost=True)))
    async with kubelet() as (_, socket):
        status = await look(live, socket)
    assert [gpu.index for gpu in status.gpus or ()] == [0, 1, 3, 4, 5, 6, 7]
    condition = (status.conditions or [])[0]
    assert (condition.status, condition.reason) == ("False", "ReadFailed")
    assert condition.message.startswith("GPU 2: ")
    assert "off the bus" in condition.message or "lost" in condition.message.lower()


async def test_who_holds_which_device_comes_from_the_kubelet(
    tmp_path: Path, look: Look, kubelet: Kubelet
) -> None:
    live = installed(tmp_path, "h100-mixed-mig")
    gpus = live.read()[1].gpus
    instance = gpus[0].instances[1]
    async with kubelet() as (service, socket):
        service.hold("whole", "nvidia.com/gpu", gpus[3].uuid)
        service.hold("slice", "nvidia.com/mig-3g.40gb", instance.uuid)
        service.hold("other", "example.com/fpga", "fpga-0")
        claimed = service.answer.pod_resources.add(name="claimed", namespace="shop")
        claim = claimed.containers.add(name="executor").dynamic_resources.add(claim_name="c")
        claim.claim_resources.add(driver_name="gpu.nvidia.com", device_name="gpu-0-mig-3g40gb-9-4")
        claim.claim_resources.add(driver_name="nic.example.com", device_name="nic-0")
        status = await look(live, socket)
    assert {item.pod: (item.resource, item.device_ids) for item in status.allocations or ()} == {
        "whole": ("nvidia.com/gpu", [gpus[3].uuid]),
        "slice": ("nvidia.com/mig-3g.40gb", [instance.uuid]),
        "claimed": ("gpu.nvidia.com", [instance.uuid]),
    }
    assert (status.conditions or [])[0].status == "True"


async def test_a_claimed_instance_with_media_engines_is_known_by_its_uuid(
    tmp_path: Path, look: Look, kubelet: Kubelet
) -> None:
    live = LiveNode(tmp_path / "live")
    description = json.loads(example("h100-mixed-mig"))
    description["gpus"] = [{"mig": {"instances": [{"profile": "1g.10gb+me", "start": 0}]}}]
    live.install(json.dumps(description), "worker")
    (gpu,) = live.read()[1].gpus
    (instance,) = gpu.instances
    assert device_name(gpu, instance) == "gpu-0-mig-1g10gb-me-20-0", "a plus is no character of device names"
    async with kubelet() as (service, socket):
        claimed = service.answer.pod_resources.add(name="claimed", namespace="shop")
        claim = claimed.containers.add(name="executor").dynamic_resources.add(claim_name="c")
        claim.claim_resources.add(driver_name="gpu.nvidia.com", device_name=device_name(gpu, instance))
        status = await look(live, socket)
    assert [item.device_ids for item in status.allocations or ()] == [[instance.uuid]]


async def test_without_the_kubelet_the_facts_are_incomplete(tmp_path: Path, look: Look) -> None:
    status = await look(installed(tmp_path, "h200-nvswitch"))
    assert (status.conditions or [])[0].reason == "PodResourcesUnreachable"


async def test_the_report_is_for_people_and_says_mock(tmp_path: Path, command: Command) -> None:
    live = installed(tmp_path, "a100-pcie-bridged")
    code, out, _ = await command(live, "--once", "--print")
    assert code == 0
    assert "MOCK" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith("GPU")}
    assert rows["GPU0"] == ["X", "NODE", "NV12", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert "profile  9  3g.40gb      {0,4}:4  42 SMs" in out


async def test_the_check_compares_driver_and_table_and_writes_its_findings(
    tmp_path: Path, command: Command
) -> None:
    live = installed(tmp_path, "h200-nvswitch")
    flat = live.flat_file.read_text()
    live.flat_file.write_text(
        flat.replace("profile 2 9 4 3 2 71424 60 3 0,4", "profile 2 9 4 3 2 71680 60 3 0")
    )
    out = tmp_path / "findings.json"
    code, _, err = await command(live, "check", f"--out={out}")
    assert code == 0, err
    findings: dict[str, Any] = json.loads(out.read_text())
    assert findings["mock"] is True
    assert findings["gpus"][0]["differences"] == [
        "3g.71gb memory in MiB: driver 71680, table 71424",
        "3g.71gb starts: driver (0,), table (0, 4)",
    ]


async def test_without_a_driver_there_is_nothing_to_look_at(tmp_path: Path, command: Command) -> None:
    live = LiveNode(tmp_path / "nowhere")
    code, _, err = await command(live, "--once")
    assert (code, "NVML cannot be opened" in err) == (2, True)
    code, _, err = await command(live, "--once", "--library=/nonexistent.so")
    assert (code, "/nonexistent.so" in err) == (2, True)


def test_a_lost_gpu_stays_known_and_exchanged_hardware_does_not(tmp_path: Path, mock_library: Path) -> None:
    live = installed(tmp_path, "h100-mixed-mig")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("driver_probe.py"), mock_library, live.directory],
        env=os.environ | {"SUPERINFER_GPUMOCK_NODE": str(live.flat_file)},
        capture_output=True,
        check=True,
    )
    h100, a100 = ["NVIDIA H100 80GB HBM3"], ["NVIDIA A100 80GB PCIe"]
    assert json.loads(done.stdout) == [
        [h100, [False] * 4, 6],
        [h100, [False, False, False, True], 6],
        [h100, [False] * 4, 6],
        [a100, [False] * 8, 28],
    ]
