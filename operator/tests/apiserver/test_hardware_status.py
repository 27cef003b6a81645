"""Memory and shapes in a pool's status, as a real API server keeps them; then nothing more is written."""

import json

import pytest

from apiserver.stage import NODE_NAMES
from superinfer_core.prediction.profile import Profile, StepCoefficients
from superinfer_kube.resources import CHIPLET_POOLS, CONFIG_MAPS, NODE_TOPOLOGIES, NODES

pytestmark = pytest.mark.apiserver

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
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.memory": "143771"}
ENGINE = {"type": "Stub", "maxModelLen": 8192, "maxNumSeqs": 256}


@pytest.fixture
async def gpus(stage):
    """The MOCK nodes have H200s, for this test only, and no other hardware is left of earlier tests."""
    for resource in (NODE_TOPOLOGIES, NODES):
        for found in (await stage.client.list(resource)).items:
            if (resource, found["metadata"]["name"]) not in {(NODES, name) for name in NODE_NAMES}:
                await stage.client.delete(resource, found["metadata"]["name"])
    for name in NODE_NAMES:
        await stage.client.patch(NODES, name, None, {"metadata": {"labels": LABELS}})
    yield
    for name in NODE_NAMES:
        await stage.client.patch(NODES, name, None, {"metadata": {"labels": dict.fromkeys(LABELS)}})


async def _status(stage):
    pool = await stage.get(CHIPLET_POOLS, "p")
    return pool.get("status") or {}


async def test_what_a_pool_needs_and_could_have_is_told_once(gpus, operator):
    profile = {"metadata": {"name": "measured", "namespace": operator.namespace}}
    await operator.client.create(CONFIG_MAPS, {**profile, "data": {"profile.json": PROFILE}})
    model = {"name": "m", "memory": MEMORY}
    await operator.pool(engine=ENGINE, chiplet={"shape": "GPU"}, model=model, profileRef={"name": "measured"})
    await operator.until_condition(CHIPLET_POOLS, "p", "Placed", ("False", "NotPlaced"))
    refused = await _status(operator)
    assert refused["memory"]["check"] == "Enforced"
    told = {one["node"]: one["message"] for one in refused["unplaced"][0]["nodes"]}
    needed = refused["memory"]["neededMiB"]
    assert told["mock-a"] == f"with 143771 MiB a chiplet, weights and KV cache need {needed} MiB"

    objectives = [{"metric": "ITL", "percentile": 99, "targetMs": 40}]
    await operator.contract("chat", poolRef={"name": "p"}, objectives=objectives, quota={"concurrency": 16})
    await operator.until_names("p-0-1", "p-1-1")
    await operator.run_pods()
    await operator.until_condition(CHIPLET_POOLS, "p", "Ready", ("True", "Ready"))
    (shape,) = (await _status(operator))["shapes"]
    assert (shape["shape"], shape["speed"], shape["gpusPerExecutor"]) == ("NVIDIA-H200 GPU", "Measured", "1")

    async def quiet():
        requests, runs = operator.runtime.client.requests, operator.runtime.loop.runs
        operator.runtime.loop.poke()
        await operator.until(lambda: _after(operator, runs))
        return operator.runtime.client.requests == requests

    await operator.until(quiet, "it never came to rest")
    assert json.dumps(await _status(operator)).count("KV cache of 131072 tokens") == 1


async def _after(stage, runs):
    return stage.runtime.loop.runs > runs
