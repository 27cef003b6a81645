"""Executors with allocation DRA: each has a claim of exactly its devices, wherever rounds are cut off."""

from dataclasses import replace
from typing import Any

import pytest

from reconciling.world import PODS, World
from superinfer_core.placement import ExecutorPhase
from superinfer_kube.errors import Unavailable
from superinfer_kube.resources import NODE_TOPOLOGIES, RESOURCE_CLAIMS
from superinfer_operator.pools.claims import LOOK_AGAIN_S, needs_claim, resource_claim
from superinfer_operator.reconciling.reconciler import NotWritten
from superinfer_operator.watching.pods import ExecutorPod

GPUS = ("GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000")
DRA: dict[str, Any] = {"chiplet": {"shape": "GPU"}, "placement": {"allocation": "DRA"}}

WAITING = ExecutorPod(
    namespace="shop",
    name="p-0-1",
    uid="uid-1",
    pool="shop/p",
    slot=0,
    incarnation=1,
    revision="r",
    chiplet={"node": "n1", "shape": "GPU", "devices": [GPUS[0]], "count": 1},
    phase=ExecutorPhase.PENDING,
)


@pytest.fixture
def world() -> World:
    made = World()
    made.node("n1")
    gpus = [
        {
            "uuid": uuid,
            "index": index,
            "product": "NVIDIA H200",
            "memoryMiB": 143771,
            "health": {"state": "Healthy"},
        }
        for index, uuid in enumerate(GPUS)
    ]
    made.put(NODE_TOPOLOGIES, {"metadata": {"name": "n1"}, "status": {"gpus": gpus}})
    return made


def claims(world: World) -> dict[str, dict[str, Any]]:
    return {name: found for (plural, _, name), found in world.objects.items() if plural == "resourceclaims"}


def expression(claim: dict[str, Any]) -> str:
    (request,) = claim["spec"]["devices"]["requests"]
    return str(request["exactly"]["selectors"][0]["cel"]["expression"])


async def test_every_executor_claims_a_device_of_its_own(world: World) -> None:
    world.pool(**DRA, replicas=3)
    await world.settle()
    assert world.names() == ["p-0-1", "p-1-1"]
    made = claims(world)
    assert sorted(made) == ["p-0-1", "p-1-1"]
    named = {uuid for claim in made.values() for uuid in GPUS if uuid in expression(claim)}
    assert named == set(GPUS)
    for pod in world.pods():
        name = pod["metadata"]["name"]
        assert pod["spec"]["resourceClaims"] == [{"name": "chiplet", "resourceClaimName": name}]
        executor = next(c for c in pod["spec"]["containers"] if c["name"] == "executor")
        assert executor["resources"]["claims"] == [{"name": "chiplet"}]
        (owner,) = made[name]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])


async def test_a_claim_that_could_not_be_made_is_made_by_the_next_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, cut = world.create, [True]

    async def cut_off_once(resource: Any, document: Any) -> Any:
        if resource is RESOURCE_CLAIMS and cut.pop() if cut else False:
            raise Unavailable("connection refused")
        return await create(resource, document)

    monkeypatch.setattr(world, "create", cut_off_once)
    world.pool(**DRA, replicas=1)
    with pytest.raises(NotWritten):
        await world.settle()
    assert (world.names(), sorted(claims(world))) == (["p-0-1"], [])
    await world.settle()
    assert sorted(claims(world)) == ["p-0-1"]


async def test_an_operator_that_starts_anew_gives_a_waiting_pod_its_claim(world: World) -> None:
    world.pool(**DRA, replicas=1)
    await world.settle()
    world.drop(RESOURCE_CLAIMS, "shop", "p-0-1")
    world.start()
    await world.settle()
    assert sorted(claims(world)) == ["p-0-1"]


async def test_a_claim_that_was_lost_comes_back_after_a_while(world: World) -> None:
    world.pool(**DRA, replicas=1)
    await world.settle()
    world.drop(RESOURCE_CLAIMS, "shop", "p-0-1")
    await world.settle()
    assert claims(world) == {}
    world.pass_time(LOOK_AGAIN_S)
    await world.settle()
    assert sorted(claims(world)) == ["p-0-1"]


async def test_what_runs_is_left_alone(world: World) -> None:
    world.pool(**DRA, replicas=2)
    await world.settle()
    for name in world.names():
        pod = world.objects["pods", "shop", name]
        world.put(PODS, {"metadata": pod["metadata"], "spec": {**pod["spec"], "nodeName": "n1"}})
    world.run_pods()
    await world.settle()
    calls = len(world.calls)
    world.pass_time(3600)
    await world.round(3)
    assert len(world.calls) == calls


async def test_a_pool_of_the_device_plugin_claims_nothing(world: World) -> None:
    world.node("n2", **{"nvidia.com/gpu": "2"})
    world.pool(chiplet={"shape": "GPU"}, replicas=1)
    await world.settle()
    assert world.names() == ["p-0-1"]
    assert claims(world) == {}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(WAITING, True, id="waiting"),
        pytest.param(replace(WAITING, scheduled=True), False, id="it has a node, so it had its claim"),
        pytest.param(replace(WAITING, terminating=True), False, id="going"),
        pytest.param(replace(WAITING, phase=ExecutorPhase.READY), False, id="serving"),
        pytest.param(
            replace(WAITING, chiplet={**WAITING.chiplet, "resource": "nvidia.com/gpu"}),
            False,
            id="of the device plugin",
        ),
        pytest.param(replace(WAITING, chiplet={"node": "n1", "shape": "CPU"}), False, id="without devices"),
    ],
)
def test_only_pods_that_wait_for_named_devices_need_one(pod: ExecutorPod, want: bool) -> None:
    assert needs_claim(pod) is want


def test_a_mig_instance_is_claimed_as_one() -> None:
    chiplet = {"shape": "MIG", "devices": ["MIG-cccccccc-0000-0000-0000-000000000000"]}
    (request,) = resource_claim(replace(WAITING, chiplet=chiplet))["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "mig.nvidia.com"


def test_an_instance_that_does_not_exist_yet_cannot_be_claimed() -> None:
    chiplet = {"shape": "MIG", "devices": ["GPU-aaaaaaaa:3g.71gb:0"]}
    with pytest.raises(ValueError, match="no UUID"):
        resource_claim(replace(WAITING, chiplet=chiplet))
