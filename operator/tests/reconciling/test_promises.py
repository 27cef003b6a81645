"""What contracts make of a pool, over whole rounds: memory it needs, shapes that would do; written once."""

import pytest

from reconciling.world import World
from superinfer_core.prediction.profile import Profile, StepCoefficients
from superinfer_kube.resources import NODES

PROFILE = Profile(
    model="m",
    engine="e",
    machine="x",
    dtype="bf16",
    step_model=StepCoefficients(base_ms=8, per_prefill_token_ms=0.1),
    max_num_seqs=8,
    max_step_tokens=2048,
).dump_json()
MEMORY = {"weightsMiB": 30_000, "kvBytesPerToken": 131_072}
H200 = "NVIDIA-H200"


def gpu_node(world, name, gpus="2"):
    node = world.node(name, **{"nvidia.com/gpu": gpus})
    labels = {"nvidia.com/gpu.product": H200, "nvidia.com/gpu.memory": "143771"}
    node["metadata"]["labels"] |= labels
    return world.put(NODES, node)


@pytest.fixture
def world():
    made = World()
    for name in ("n1", "n2", "n3"):
        gpu_node(made, name)
    made.config_map("measured", {"profile.json": PROFILE})
    return made


def gpu_pool(world, **spec):
    engine = {"type": "Stub", "maxModelLen": 8192, "maxNumSeqs": 256}
    return world.pool(engine=engine, chiplet={"shape": "GPU"}, **spec)


def status(world):
    return world.objects["chipletpools", "shop", "p"]["status"]


async def test_a_pool_that_says_nothing_of_memory_is_told_so(world):
    gpu_pool(world)
    await world.settle()
    assert status(world)["memory"]["check"] == "NotStated"
    assert "superinfer memory MODEL_DIR" in status(world)["memory"]["message"]


async def test_a_chiplet_too_small_is_refused_with_node_need_and_have(world):
    gpu_pool(world, model={"name": "m", "memory": MEMORY})
    await world.settle()
    told = status(world)
    assert world.names() == []
    assert told["memory"]["check"] == "Enforced"
    needed = told["memory"]["neededMiB"]
    assert world.conditions("chipletpools", "p")["Placed"] == ("False", "NotPlaced")
    (first, *_) = told["unplaced"]
    assert first["reason"] == "NotEnoughMemory"
    assert {one["node"] for one in first["nodes"]} == {"n1", "n2", "n3"}
    words = f"with 143771 MiB a chiplet, weights and KV cache need {needed} MiB"
    assert {one["message"] for one in first["nodes"]} == {words}


async def test_contracts_that_bound_what_runs_at_once_make_it_fit(world):
    gpu_pool(world, model={"name": "m", "memory": MEMORY})
    await world.settle()
    assert world.names() == []
    world.contract("chat", poolRef={"name": "p"}, quota={"concurrency": 16})
    await world.settle()
    assert world.names() == ["p-0-1", "p-1-1"]
    assert "KV cache of 131072 tokens" in status(world)["memory"]["message"]


async def test_executors_that_run_stay_when_a_contract_asks_for_more_than_fits(world):
    gpu_pool(world, model={"name": "m", "memory": MEMORY})
    world.contract("chat", poolRef={"name": "p"}, quota={"concurrency": 16})
    await world.settle()
    world.run_pods()
    await world.settle()
    world.contract("batch", poolRef={"name": "p"})
    await world.settle()
    assert world.names() == ["p-0-1", "p-1-1"]
    assert status(world)["memory"]["neededMiB"] > 143_771


async def test_shapes_that_keep_its_contracts_are_told_and_not_written_again_for_every_pod(world):
    gpu_pool(world, profileRef={"name": "measured"})
    objectives = [{"metric": "ITL", "percentile": 99, "targetMs": 40}]
    world.contract("chat", poolRef={"name": "p"}, objectives=objectives)
    await world.settle()
    world.run_pods()
    await world.settle()
    (shape,) = status(world)["shapes"]
    assert shape == {
        "shape": f"{H200} GPU",
        "speed": "Measured",
        "executors": 2,
        "gpusPerExecutor": "1",
        "latencyMarginPercent": 80,
        "tightest": "ITL",
        "nodes": 2,
        "lostWithANodePercent": 50,
    }
    assert "for 1 contract" in status(world)["shapesMessage"]
    before = len(world.calls)
    world.pool("other", chiplet={"shape": "GPU"}, replicas=1)
    gpu_node(world, "n4")
    await world.settle()
    assert [call for call in world.calls[before:] if call.endswith(" p")] == []


async def test_after_a_restart_nothing_is_written_anew(world):
    gpu_pool(world, profileRef={"name": "measured"}, model={"name": "m", "memory": MEMORY})
    world.contract("chat", poolRef={"name": "p"}, quota={"concurrency": 16})
    await world.settle()
    world.run_pods()
    await world.settle()
    before = len(world.calls)
    world.start()
    await world.settle()
    assert world.calls[before:] == []
