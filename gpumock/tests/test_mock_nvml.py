"""The real pynvml against the MOCK library, in processes of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from superinfer_core.placement.geometry import PRODUCTS
from superinfer_core.placement.node import RecoveryAction
from superinfer_gpumock.examples import NAMES, example
from superinfer_gpumock.faults import Failure, fail, recover
from superinfer_gpumock.live import LiveNode

PROBE = Path(__file__).with_name("nvml_probe.py")
Probe = Callable[[LiveNode], dict[str, Any]]


def environment(live: LiveNode, library: Path) -> dict[str, str]:
    return os.environ | {"LD_LIBRARY_PATH": str(library), "SUPERINFER_GPUMOCK_NODE": str(live.flat_file)}


@pytest.fixture
def probe(library_directory: Path) -> Probe:
    def run(live: LiveNode) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, PROBE], env=environment(live, library_directory), capture_output=True, check=True
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


def installed(tmp_path: Path, name: str) -> LiveNode:
    live = LiveNode(tmp_path / "live")
    live.install(example(name), "worker")
    return live


@pytest.mark.parametrize("name", NAMES)
def test_the_library_says_what_is_described(name: str, tmp_path: Path, probe: Probe) -> None:
    live = installed(tmp_path, name)
    node = live.read()[1]
    answer = probe(live)
    assert answer["driver"].endswith("-MOCK")
    assert answer["nvml"].endswith("-MOCK")
    assert [gpu["uuid"] for gpu in answer["gpus"]] == [gpu.uuid for gpu in node.gpus]
    for said, gpu in zip(answer["gpus"], node.gpus, strict=True):
        assert (said["name"], said["memory_mib"]) == (node.product.name, node.product.memory_mib)
        assert (said["pci"], said["numa"]) == (gpu.pci_bus_id, gpu.numa_node)
        assert said["mig_mode"] == [int(gpu.mig_enabled)] * 2
        assert [(made["uuid"], made["gi"], made["start"]) for made in said["migs"]] == [
            (instance.uuid, instance.gi_id, instance.start) for instance in gpu.instances
        ]
        assert all(made["parent"] == gpu.uuid for made in said["migs"])


@pytest.mark.parametrize("name", NAMES)
def test_profiles_and_placements_are_the_geometry_of_the_product(
    name: str, tmp_path: Path, probe: Probe
) -> None:
    answer = probe(installed(tmp_path, name))
    product = PRODUCTS[answer["gpus"][0]["name"]]
    said = answer["gpus"][0]["profiles"]
    assert {name.removeprefix("MIG ") for name in said} == {profile.name for profile in product.mig_profiles}
    for profile in product.mig_profiles:
        info = said[f"MIG {profile.name}"]
        assert info["placements"] == [[start, profile.memory_slices] for start in profile.starts]
        assert (info["slices"], info["count"], info["p2p"]) == (
            profile.compute_slices,
            profile.max_instances,
            0,
        )
        assert (info["sms"], info["memory"]) == (profile.multiprocessors, profile.memory_mib)


def test_remaining_capacity_counts_what_still_fits(tmp_path: Path, probe: Probe) -> None:
    live = LiveNode(tmp_path / "live")
    laid = [{"profile": "2g.20gb", "start": 2}]
    document = {
        "format": "superinfer-gpumock/v1",
        "product": "NVIDIA A100 80GB PCIe",
        "gpus": [{"mig": {"instances": laid}}],
    }
    live.install(json.dumps(document), "worker")
    said = probe(live)["gpus"][0]["profiles"]
    assert {name.removeprefix("MIG "): info["remaining"] for name, info in said.items()} == {
        "7g.80gb": 0,
        "4g.40gb": 0,
        "3g.40gb": 1,
        "2g.20gb": 2,
        "1g.20gb": 3,
        "1g.10gb": 5,
        "1g.10gb+me": 1,
    }


def test_links_of_a_bridged_node_lead_to_the_partner_and_of_a_switched_one_to_switches(
    tmp_path: Path, probe: Probe
) -> None:
    bridged = probe(installed(tmp_path / "a", "a100-pcie-bridged"))["gpus"]
    assert bridged[0]["links"] == [bridged[2]["pci"]] * 12
    assert [at for at, status in enumerate(bridged[0]["p2p_nvlink"]) if status == 0] == [2]
    switched = probe(installed(tmp_path / "b", "h200-nvswitch"))["gpus"]
    assert switched[0]["links"] == ["switch"] * 18
    assert switched[0]["p2p_nvlink"] == [0] * 8
    assert switched[0]["fields"][1] == [0, 18]
    assert switched[0]["ancestors"] == [0, 10, 40, 40, 50, 50, 50, 50]


def test_mig_has_no_peer_to_peer(tmp_path: Path, probe: Probe) -> None:
    gpus = probe(installed(tmp_path, "h100-mixed-mig"))["gpus"]
    assert gpus[0]["p2p_nvlink"] == [5, 5, 5, 5]
    assert gpus[3]["p2p_nvlink"] == [5, 5, 5, 0]


def test_fabric_membership(tmp_path: Path, probe: Probe) -> None:
    assert probe(installed(tmp_path / "a", "b200-fabric"))["gpus"][0]["fabric"] == [
        "7b968a6dc8aa45e19e07e1e51be99c31", 1, 3,
    ]  # fmt: skip
    assert probe(installed(tmp_path / "b", "h200-nvswitch"))["gpus"][0]["fabric"] == ["0" * 32, 0, 0]


def test_faults_show_in_counts_and_recovery_action(tmp_path: Path, probe: Probe) -> None:
    live = installed(tmp_path, "h200-nvswitch")
    live.edit(lambda described: fail(described, Failure(gpu=2, xid=48)))
    live.edit(lambda described: fail(described, Failure(gpu=3, xid=79, lost=True)))
    gpus = probe(live)["gpus"]
    assert gpus[2]["fields"][0] == [0, 1]
    assert gpus[2]["ecc"] == [0, 1]
    assert gpus[3] == {"lost": True}
    assert gpus[4]["fields"][0] == [0, 0]
    live.edit(lambda described: recover(described, 3))
    assert probe(live)["gpus"][3]["uuid"] == live.read()[1].gpus[3].uuid


def test_a_field_nobody_knows_is_not_supported(tmp_path: Path, probe: Probe) -> None:
    assert probe(installed(tmp_path, "h200-nvswitch"))["gpus"][0]["fields"][6][0] == 3


def test_without_a_description_there_is_no_driver(tmp_path: Path, library_directory: Path) -> None:
    live = LiveNode(tmp_path / "nowhere")
    done = subprocess.run(
        [sys.executable, PROBE], env=environment(live, library_directory), capture_output=True, check=False
    )
    assert b"NVMLError_DriverNotLoaded" in done.stderr


def test_a_watcher_gets_events_in_order_and_only_those_after_it_began(
    tmp_path: Path, library_directory: Path
) -> None:
    live = installed(tmp_path, "h100-mixed-mig")
    live.edit(lambda described: fail(described, Failure(gpu=0, xid=31)))
    watcher = subprocess.Popen(
        [sys.executable, PROBE, "5"],
        env=environment(live, library_directory),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "watching\n"
    gi_id = live.read()[1].gpus[1].instances[2].gi_id
    live.edit(lambda described: fail(described, Failure(gpu=1, gi_id=gi_id, xid=94)))
    live.edit(lambda described: fail(described, Failure(gpu=3, action=RecoveryAction.NODE_REBOOT)))
    live.edit(lambda described: recover(described, 3))
    live.edit(lambda described: fail(described, Failure(gpu=3, xid=79)))
    nowhere = 0xFFFFFFFF
    assert [json.loads(watcher.stdout.readline()) for _ in range(5)] == [
        [1, 0x8, 94, gi_id],
        [1, 0x2, 0, gi_id],
        [3, 0x8000, 2, nowhere],
        [3, 0x8000, 0, nowhere],
        [3, 0x8, 79, nowhere],
    ]
    assert watcher.wait(10) == 0
    watcher.stdout.close()
