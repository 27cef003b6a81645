"""`superinfer plan` and the operator say the same of one cluster: word for word, field for field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reconciling.test_promises import MEMORY, PROFILE, gpu_node, gpu_pool
from reconciling.world import World
from superinfer.main import app
from superinfer_kube.resources import NODE_TOPOLOGIES

KINDS = {
    "chipletpools": "ChipletPool",
    "configmaps": "ConfigMap",
    "nodes": "Node",
    "nodetopologies": "NodeTopology",
    "pods": "Pod",
    "slocontracts": "SLOContract",
}
MIG = {"shape": "MIG", "profile": "3g.71gb"}


def printed(world: World) -> str:
    """The cluster as `kubectl get -o json` prints it."""
    items = [
        {"kind": KINDS[plural], **document}
        for (plural, _, _), document in sorted(world.objects.items())
        if plural in KINDS
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def planned(text: str, folder: Path) -> dict[str, Any]:
    file = folder / "cluster.yaml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"])
    assert done.exit_code in (0, 1), done.output
    pools: dict[str, Any] = json.loads(done.stdout)["pools"]
    return pools


def told(world: World) -> dict[str, Any]:
    """What the operator wrote, without times."""
    found = {}
    for (plural, namespace, name), document in world.objects.items():
        if plural == "chipletpools":
            status = document["status"]
            conditions = [
                {field: value for field, value in condition.items() if field != "lastTransitionTime"}
                for condition in status["conditions"]
            ]
            found[f"{namespace}/{name}"] = {**status, "conditions": conditions}
    return found


def cut_node(world: World, name: str, *profiles: str) -> None:
    """A node whose only GPU is in MIG mode, with these instances."""
    node = gpu_node(world, name, gpus="0")
    for profile in profiles:
        node["status"]["allocatable"][f"nvidia.com/mig-{profile}"] = "1"
    gpu = {
        "uuid": f"GPU-{name}",
        "index": 0,
        "product": "NVIDIA-H200",
        "memoryMiB": 143771,
        "migEnabled": True,
        "health": {"state": "Healthy"},
        "instances": [
            {"uuid": f"MIG-{name}-{n}", "profile": profile, "giID": n + 1, "start": 4 * n, "size": 4}
            for n, profile in enumerate(profiles)
        ],
    }
    world.put(NODE_TOPOLOGIES, {"metadata": {"name": name}, "status": {"gpus": [gpu]}})


async def placed(world: World) -> None:
    gpu_pool(world)


async def too_small(world: World) -> None:
    gpu_pool(world, model={"name": "m", "memory": MEMORY})


async def fits_by_contract(world: World) -> None:
    gpu_pool(world, model={"name": "m", "memory": MEMORY})
    world.contract("chat", poolRef={"name": "p"}, quota={"concurrency": 16})


async def shapes(world: World) -> None:
    cut_node(world, "m1", "3g.71gb", "3g.71gb")
    cut_node(world, "m2", "3g.71gb")
    world.config_map("measured", {"profile.json": PROFILE, "profile.gpu.json": PROFILE})
    objectives = [{"metric": "ITL", "percentile": 99, "targetMs": 40}]
    world.contract("chat", poolRef={"name": "p"}, objectives=objectives)
    gpu_pool(world, profileRef={"name": "measured"})


async def another_layout(world: World) -> None:
    cut_node(world, "m1", "4g.71gb")
    world.pool(engine={"type": "Stub"}, chiplet=MIG)


async def not_accepted(world: World) -> None:
    world.pool(chiplet={"shape": "MIG"})


async def too_many(world: World) -> None:
    gpu_pool(world, replicas=9)


async def scaled_down_while_running(world: World) -> None:
    gpu_pool(world)
    await world.settle()
    world.run_pods()
    await world.settle()
    world.pool(replicas=1)


CASES = [placed, too_small, fits_by_contract, shapes, another_layout, not_accepted, too_many]
CASES += [scaled_down_while_running]


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
async def test_the_plan_of_a_cluster_is_the_status_its_pools_get(
    build: Callable[..., Any], tmp_path: Path
) -> None:
    world = World()
    for name in ("n1", "n2", "n3"):
        gpu_node(world, name)
    await build(world)
    before = printed(world)
    await world.settle()
    assert planned(before, tmp_path) == told(world)
