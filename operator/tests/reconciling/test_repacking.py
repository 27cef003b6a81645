"""Making room by moving: only where allowed, only when all is calm, and never at the cost of what serves."""

from dataclasses import replace

import pytest

from reconciling.world import SETTINGS, World
from superinfer_kube.resources import NODE_TOPOLOGIES
from superinfer_operator.placing.repacking import REST_S

pytest.importorskip("ortools")


async def fragmented(*, repack):
    """Two nodes with one of two GPUs taken each, and a pool that needs two on one node."""
    world = World(replace(SETTINGS, repack=repack))
    for name, other in (("n1", "n2"), ("n2", "n1")):
        world.node(name, **{"nvidia.com/gpu": "2"})
        world.put(NODE_TOPOLOGIES, topology(name))
        if other in {pod.node for pod in world.cluster.executors(0)}:
            world.node(other, spec={"unschedulable": True}, **{"nvidia.com/gpu": "2"})
        world.pool(name=f"on-{name}", chiplet={"shape": "GPU"}, replicas=1)
        await world.settle()
        world.run_pods()
        await world.settle()
    world.node("n1", spec={}, **{"nvidia.com/gpu": "2"})
    assert sorted(pod.node for pod in world.cluster.executors(0)) == ["n1", "n2"]
    world.pool(name="large", chiplet={"shape": "GPU", "count": 2}, replicas=1)
    return world


def topology(node):
    gpus = [
        {
            "uuid": f"GPU-{node}-{index}",
            "index": index,
            "product": "NVIDIA-H200",
            "memoryMiB": 143771,
            "nvlinkSwitch": True,
            "health": {"state": "Healthy"},
        }
        for index in range(2)
    ]
    return {"metadata": {"name": node}, "status": {"gpus": gpus}}


def small_ones(world):
    """Executors of the small pools that serve."""
    return [
        pod
        for pod in world.pods()
        if pod["metadata"]["name"].startswith("on-")
        and pod.get("status")
        and not pod["metadata"].get("deletionTimestamp")
    ]


async def test_without_leave_nothing_is_moved():
    world = await fragmented(repack=False)
    await world.settle()
    world.pass_time(REST_S * 2)
    await world.settle()
    assert world.names() == ["on-n1-0-1", "on-n2-0-1"]
    assert world.conditions("chipletpools", "large")["Placed"] == ("False", "NotPlaced")


async def test_with_leave_one_executor_moves_and_serves_all_along():
    world = await fragmented(repack=True)
    served = []
    for _ in range(12):
        await world.round()
        served.append(len(small_ones(world)))
        world.run_pods()
    await world.settle()
    assert min(served) == 2
    for name in ("large", "on-n1", "on-n2"):
        assert world.conditions("chipletpools", name)["Ready"] == ("True", "Ready"), name
    assert world.reasons().count("Repacking") == 1
    assert world.reasons().count("Repacked") == 1


async def test_nothing_is_moved_while_an_executor_starts():
    world = await fragmented(repack=True)
    world.node("n3", **{"nvidia.com/gpu": "0"})
    world.pool(name="starting", chiplet={"shape": "CPU"}, replicas=1)
    await world.round()
    world.pass_time(REST_S * 2)
    await world.round(3)
    assert "Repacking" not in world.reasons()
