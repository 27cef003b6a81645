"""The operator against a real API server: what people do with kubectl, and what is there afterwards."""

import asyncio
import base64

import pytest
import yaml

from superinfer_kube.resources import (
    CHIPLET_POOLS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
    SLO_CONTRACTS,
)
from superinfer_operator.cleanup import clean_up

pytestmark = pytest.mark.apiserver


async def serving(stage, **spec):
    await stage.pool(**spec)
    wanted = spec.get("replicas", 2)
    await stage.until_names(*(f"p-{slot}-1" for slot in range(wanted)))
    await stage.run_pods()
    await stage.until_condition(CHIPLET_POOLS, "p", "Ready", ("True", "Ready"))


async def test_a_pool_becomes_everything_it_needs(operator):
    await serving(operator)
    service = await operator.get(SERVICES, "p-executors")
    assert service["spec"]["clusterIP"] == "None"
    assert await operator.get(POD_DISRUPTION_BUDGETS, "p-executors") is not None
    tls = await operator.get(SECRETS, "p-executor-tls")
    assert set(tls["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    pool = await operator.get(CHIPLET_POOLS, "p")
    assert pool["metadata"]["finalizers"] == ["superinfer.dev/drain"]
    assert pool["status"]["observedGeneration"] == pool["metadata"]["generation"]
    for made in (service, tls, (await operator.pods())[0]):
        assert made["metadata"]["ownerReferences"][0]["uid"] == pool["metadata"]["uid"]


async def test_nothing_is_written_once_all_is_well(operator):
    await serving(operator)

    async def quiet():
        before = operator.runtime.client.requests
        runs = operator.runtime.loop.runs
        operator.runtime.loop.poke()
        await operator.until(lambda: _after(operator, runs))
        return operator.runtime.client.requests == before

    await operator.until(quiet, "it never came to rest")


async def _after(stage, runs):
    return stage.runtime.loop.runs > runs


async def test_kubectl_scale(operator):
    await serving(operator)
    await operator.kubectl("scale", "chippool", "p", "--replicas=3")
    await operator.until_names("p-0-1", "p-1-1", "p-2-1")
    await operator.kubectl("scale", "chippool", "p", "--replicas=0")
    await operator.until_names()
    await operator.until_condition(CHIPLET_POOLS, "p", "Ready", ("True", "ScaledToZero"))


async def test_kubectl_delete_of_a_pod_gives_another_incarnation(operator):
    await serving(operator, replicas=1)
    await operator.kubectl("delete", "pod", "p-0-1", "--grace-period=0", "--force")
    await operator.until_names("p-0-2")


async def test_kubectl_delete_of_a_pool_ends_with_nothing_left_and_nothing_hanging(operator):
    await serving(operator)
    await operator.kubectl("delete", "chippool", "p", "--timeout=60s")
    assert await operator.pods() == []
    assert await operator.get(CHIPLET_POOLS, "p") is None


async def test_a_pool_of_the_same_name_is_another_pool(operator):
    await serving(operator, replicas=1)
    await operator.kubectl("delete", "chippool", "p", "--timeout=60s")
    before = await operator.pool(replicas=1)
    await operator.until_names("p-0-1")
    assert (await operator.pods())[0]["metadata"]["ownerReferences"][0]["uid"] == before["metadata"]["uid"]


async def test_what_somebody_breaks_is_mended_and_what_they_add_stays(operator):
    await serving(operator)
    change = {"spec": {"publishNotReadyAddresses": True}, "metadata": {"labels": {"team": "shop"}}}
    await operator.client.patch(SERVICES, "p-executors", operator.namespace, change)

    async def mended():
        service = await operator.get(SERVICES, "p-executors")
        return not service["spec"].get("publishNotReadyAddresses")

    await operator.until(mended)
    assert (await operator.get(SERVICES, "p-executors"))["metadata"]["labels"]["team"] == "shop"
    await operator.client.delete(SERVICES, "p-executors", operator.namespace)
    await operator.until(lambda: operator.get(SERVICES, "p-executors"))


async def test_conflicting_contracts_name_each_other_and_the_older_goes_on(operator):
    await operator.pool()
    ttft = {"metric": "TTFT", "percentile": 99}
    await operator.contract("checkout", poolRef={"name": "p"}, objectives=[ttft | {"targetMs": 300}])
    await operator.until_condition(SLO_CONTRACTS, "checkout", "Ready", ("True", "Ready"))
    await asyncio.sleep(1.1)  # creation times are whole seconds: who is older must not be a toss of UIDs
    await operator.contract("checkout-chat", objectives=[ttft | {"targetMs": 900}])
    await operator.contract("loop-a", parentRef={"name": "loop-b"})
    await operator.contract("loop-b", parentRef={"name": "loop-a"})
    await operator.contract("greedy", poolRef={"name": "p"}, resources={"minChiplets": 99})
    for name, kind, reason in (
        ("checkout-chat", "Accepted", "LooserThanParent"),
        ("loop-a", "Accepted", "ParentCycle"),
        ("greedy", "Feasible", "ResourcesUnavailable"),
    ):
        await operator.until_condition(SLO_CONTRACTS, name, kind, ("False", reason))
    chat = await operator.get(SLO_CONTRACTS, "checkout-chat")
    ready = next(c for c in chat["status"]["conditions"] if c["type"] == "Ready")
    assert f"{operator.namespace}/checkout" in ready["message"]
    assert (await operator.conditions(SLO_CONTRACTS, "checkout"))["Ready"] == ("True", "Ready")
    pool = await operator.get(CHIPLET_POOLS, "p")
    assert pool["spec"]["replicas"] == 2, "an infeasible contract scales nothing up"


async def test_an_edited_contract_is_looked_at_anew_and_times_move_with_status_alone(operator):
    await operator.pool()
    await operator.contract("c", poolRef={"name": "p"}, tier="Gold")
    await operator.until_condition(SLO_CONTRACTS, "c", "Ready", ("True", "Ready"))
    before = await operator.get(SLO_CONTRACTS, "c")
    await operator.contract("c", poolRef={"name": "p"}, tier="Silver")

    async def looked_at():
        found = await operator.get(SLO_CONTRACTS, "c")
        return found["status"]["observedGeneration"] == 2 and found

    after = await operator.until(looked_at)
    assert after["status"]["effective"]["spec"]["tier"] == "Silver"
    assert [c["lastTransitionTime"] for c in after["status"]["conditions"]] == [
        c["lastTransitionTime"] for c in before["status"]["conditions"]
    ]


async def test_keys_reach_the_ingress_as_digests(operator):
    secret = {
        "metadata": {
            "name": "team",
            "namespace": operator.namespace,
            "labels": {"superinfer.dev/api-keys": "true"},
        },
        "stringData": {"alice": "sk-secret"},
    }
    await operator.client.create(SECRETS, secret)

    async def entries():
        found = await operator.get(SECRETS, "superinfer-api-keys")
        return yaml.safe_load(base64.b64decode(found["data"]["keys.yaml"]))["keys"] if found else None

    found = await operator.until(entries)
    assert [(e["namespaces"], e["secret"]) for e in found] == [([operator.namespace], "team")]
    await operator.client.delete(SECRETS, "team", operator.namespace)

    async def gone():
        return await entries() == []

    await operator.until(gone, "a deleted key still opens the door")


async def test_a_cordoned_node_gets_nothing_new(operator):
    await operator.client.patch(NODES, "mock-b", None, {"spec": {"unschedulable": True}})
    await operator.pool(replicas=2)
    await operator.until_names("p-0-1", "p-1-1")
    terms = [
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        for pod in await operator.pods()
    ]
    nodes = {term["nodeSelectorTerms"][0]["matchFields"][0]["values"][0] for term in terms}
    assert nodes == {"mock-a"}


async def test_gpus_are_given_once_and_the_rest_is_explained(operator):
    await operator.pool(chiplet={"shape": "GPU"}, replicas=5)
    await operator.until_names("p-0-1", "p-1-1", "p-2-1", "p-3-1")
    await operator.until_condition(CHIPLET_POOLS, "p", "Placed", ("False", "PartlyPlaced"))
    status = (await operator.get(CHIPLET_POOLS, "p"))["status"]
    assert status["unplacedReplicas"] == 1
    assert {node["node"] for node in status["unplaced"][0]["nodes"]} >= {"mock-a", "mock-b"}


async def test_cleanup_lets_pools_go_while_an_operator_runs(operator):
    await serving(operator)
    assert await clean_up(operator.client, timeout_s=30) == 0
    assert await operator.get(CHIPLET_POOLS, "p") is None
    assert await operator.pods() == []


async def test_cleanup_forces_them_where_none_runs(stage):
    stage.start()
    await serving(stage)
    await stage.kill()
    assert await clean_up(stage.client, timeout_s=0.5) == 0
    assert await stage.get(CHIPLET_POOLS, "p") is None


async def test_events_tell_the_story(operator):
    await serving(operator, replicas=1)
    await operator.kubectl("scale", "chippool", "p", "--replicas=0")
    await operator.until_names()

    async def told():
        return {"ExecutorCreated", "Serving", "ScaledDown"} <= set(await operator.reasons())

    await operator.until(told)


async def test_the_api_server_takes_what_a_pod_may_be(operator):
    """A template, files and a GPU group at once: accepted whole, and pinned."""
    template = {
        "metadata": {"labels": {"team": "shop"}},
        "spec": {
            "volumes": [{"name": "models", "emptyDir": {}}],
            "containers": [
                {
                    "name": "executor",
                    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                    "resources": {"limits": {"memory": "4Gi"}},
                }
            ],
        },
    }
    await operator.pool(
        model={"name": "m", "source": {"path": "/models/m"}},
        engine={"type": "VLLM", "image": "vllm:1", "maxModelLen": 2048},
        chiplet={"shape": "GPU", "count": 2},
        checkpoint={"memoryMiB": 1024},
        podTemplate=template,
        replicas=1,
    )
    await operator.until_names("p-0-1")
    pod = await operator.client.get(PODS, "p-0-1", operator.namespace)
    executor = next(c for c in pod["spec"]["containers"] if c["name"] == "executor")
    assert executor["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": "2"}
    assert pod["metadata"]["labels"]["team"] == "shop"
