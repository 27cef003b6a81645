"""Whole rounds over a cluster in memory: what is there afterwards, whatever happened before."""

import pytest

from reconciling.world import PODS, SETTINGS, World
from superinfer_kube.errors import Forbidden
from superinfer_operator.pools.tending import PoolTender
from superinfer_operator.reconciling.reconciler import NotWritten


class Killed(BaseException):
    """What nothing in the operator may catch, as it could not catch a SIGKILL."""


@pytest.fixture
def world():
    made = World()
    for name in ("n1", "n2", "n3"):
        made.node(name, **{"nvidia.com/gpu": "2"})
    return made


async def running(world, **spec):
    world.pool(**spec)
    await world.settle()
    world.run_pods()
    await world.settle()


async def test_a_pool_becomes_pods_a_service_a_budget_and_a_status(world):
    await running(world)
    assert world.names() == ["p-0-1", "p-1-1"]
    assert ("services", "shop", "p-executors") in world.objects
    assert ("poddisruptionbudgets", "shop", "p-executors") in world.objects
    assert world.conditions("chipletpools", "p")["Ready"] == ("True", "Ready")
    status = world.objects["chipletpools", "shop", "p"]["status"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)


async def test_replicas_are_spread_over_nodes(world):
    await running(world, replicas=3)
    nodes = {
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ][0]["matchFields"][0]["values"][0]
        for pod in world.pods()
    }
    assert nodes == {"n1", "n2", "n3"}


async def test_a_settled_cluster_is_left_alone(world):
    await running(world)
    calls, events = len(world.calls), len(world.events)
    world.pass_time(3600)
    await world.round(3)
    assert (len(world.calls), len(world.events)) == (calls, events)


async def test_scaling_up_keeps_what_runs_and_scaling_down_drains(world):
    await running(world)
    world.pool(replicas=3)
    await world.settle()
    assert {"p-0-1", "p-1-1", "p-2-1"} == set(world.names())
    world.run_pods()
    world.pool(replicas=1)
    await world.settle()
    assert len(world.names()) == 1
    assert world.reasons().count("ScaledDown") == 1


async def test_what_is_asked_for_beyond_the_bounds_is_told_and_not_done(world):
    await running(world, autoscaling={"minReplicas": 1, "maxReplicas": 3})
    world.pool(replicas=5)
    await world.settle()
    world.run_pods()
    await world.settle()
    assert len(world.names()) == 3
    found = world.conditions("chipletpools", "p")
    assert found["ScalingLimited"] == ("True", "TooManyReplicas")
    assert (found["Ready"], found["Placed"]) == (("True", "Ready"), ("True", "Placed"))
    assert [event["type"] for event in world.events if event["reason"] == "TooManyReplicas"] == ["Normal"]
    assert world.objects["chipletpools", "shop", "p"]["spec"]["replicas"] == 5, "an autoscaler's word stays"
    world.pool(autoscaling={"maxReplicas": 5})
    await world.settle()
    assert len(world.names()) == 5


async def test_a_name_is_never_used_twice(world):
    await running(world, replicas=1)
    world.drop(PODS, "shop", "p-0-1")
    await world.settle()
    assert world.names() == ["p-0-2"]
    world.drop(PODS, "shop", "p-0-2")
    world.start()
    await world.settle()
    assert world.names() == ["p-0-3"], "not even by an operator that never saw the others"


async def test_two_executors_never_share_a_gpu(world):
    await running(world, chiplet={"shape": "GPU"}, replicas=8)
    assert len(world.names()) == 6
    assert world.conditions("chipletpools", "p")["Placed"] == ("False", "PartlyPlaced")
    status = world.objects["chipletpools", "shop", "p"]["status"]
    assert status["unplacedReplicas"] == 2
    assert {node["node"] for node in status["unplaced"][0]["nodes"]} == {"n1", "n2", "n3"}


async def test_gpus_of_other_pods_are_not_taken(world):
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    for name in ("n1", "n2"):
        spec = {"nodeName": name, "containers": [{"name": "c", "resources": limits}]}
        world.put(
            PODS,
            {
                "metadata": {"name": f"other-{name}", "namespace": "x"},
                "spec": spec,
                "status": {"phase": "Running"},
            },
        )
    await running(world, chiplet={"shape": "GPU"}, replicas=3)
    assert len([name for name in world.names() if name.startswith("p-")]) == 2


async def test_a_new_image_replaces_one_executor_after_the_other_and_serves_all_along(world):
    await running(world)
    world.pool(engine={"type": "Stub", "image": "stub:2"})
    for _ in range(12):
        await world.round()
        ready = [
            pod for pod in world.pods() if pod.get("status") and not pod["metadata"].get("deletionTimestamp")
        ]
        assert len(ready) >= 1
        world.run_pods()
    await world.settle()
    images = {pod["spec"]["containers"][0]["image"] for pod in world.pods()}
    assert (images, len(world.names())) == ({"stub:2"}, 2)
    assert world.conditions("chipletpools", "p")["Ready"] == ("True", "Ready")


async def test_an_edit_with_a_mistake_ends_nothing(world):
    await running(world)
    before = world.names()
    world.pool(podTemplate={"spec": {"nodeName": "n1"}})
    await world.settle()
    assert world.names() == before
    found = world.conditions("chipletpools", "p")
    assert found["Accepted"] == ("False", "InvalidSpec")
    assert found["Serving"] == ("True", "Serving")


async def test_a_deleted_pool_is_drained_and_then_let_go(world):
    await running(world)
    world.delete_pool()
    await world.settle()
    assert world.names() == []
    assert ("chipletpools", "shop", "p") in world.objects, "pods are still draining"
    world.run_pods()
    await world.settle()
    assert ("chipletpools", "shop", "p") not in world.objects


async def test_a_pool_whose_pods_never_go_is_let_go_in_the_end(world):
    await running(world)
    world.delete_pool()
    await world.settle()
    world.pass_time(60 + SETTINGS.force_after_s + 1)
    await world.settle()
    assert ("chipletpools", "shop", "p") not in world.objects
    assert "DrainOverdue" in world.reasons()


async def test_executors_of_a_vanished_pool_end(world):
    await running(world)
    world.objects["chipletpools", "shop", "p"]["metadata"]["finalizers"] = []
    world.delete_pool()
    await world.settle()
    assert world.names() == []


async def test_a_lost_node_is_replaced_after_its_grace_and_not_before(world):
    await running(world, replicas=1)
    lost = world.cluster.executors(0)[0].node
    world.node(lost, ready=False)
    await world.settle()
    assert world.names() == ["p-0-1"]
    world.pass_time(31)
    await world.settle()
    kept = {pod.name: pod.node for pod in world.cluster.executors(0) if not pod.terminating}
    assert list(kept) == ["p-0-2"]
    assert kept["p-0-2"] != lost
    types = {event["reason"]: event["type"] for event in world.events}
    assert (types["NodeLost"], types["ExecutorCreated"]) == ("Warning", "Normal")


async def test_a_cordoned_node_keeps_what_it_has_and_gets_nothing_new(world):
    await running(world)
    before = world.names()
    node = world.cluster.executors(0)[0].node
    world.node(node, spec={"unschedulable": True})
    world.pool(replicas=4)
    await world.settle()
    assert set(before) <= set(world.names())
    assert [pod.node for pod in world.cluster.executors(0)].count(node) == 1


class TestFailingPods:
    """A pod that fails is replaced, but a pool never thrashes."""

    async def test_the_first_failure_is_replaced_at_once(self, world):
        await running(world, replicas=1)
        world.set_pod("p-0-1", phase="Failed", reason="Evicted", message="low on memory")
        await world.settle()
        assert "p-0-2" in world.names()

    async def test_further_failures_wait_longer_each_time(self, world):
        world.pool(replicas=1)
        await world.settle()
        for _ in range(40):
            for name in world.names():
                world.set_pod(name, phase="Failed", reason="UnexpectedAdmissionError", message="no device")
            await world.settle()
            world.run_gone()
            await world.settle()
            world.pass_time(10)
        tries = len([call for call in world.calls if call.startswith("create pods")])
        assert 3 <= tries <= 8, "400 seconds hold a handful of tries, not forty"

    async def test_the_reason_and_the_next_try_are_told(self, world):
        world.pool(replicas=1)
        await world.settle()
        for _ in range(2):
            for name in world.names():
                world.set_pod(name, phase="Failed", reason="UnexpectedAdmissionError", message="no device")
            await world.settle()
            world.run_gone()
        await world.settle()
        status = world.objects["chipletpools", "shop", "p"]["status"]
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        assert ready["reason"] == "ExecutorsFailed"
        assert "not before" in ready["message"]


async def test_pods_the_server_refuses_are_explained_and_tried_again_later(world):
    create = world.create

    async def refusing(resource, document):
        if resource is PODS:
            world.calls.append("refused")
            raise Forbidden("violates PodSecurity restricted", status=403, reason="Forbidden")
        return await create(resource, document)

    world.create = refusing
    world.pool(replicas=3)
    await world.settle()
    assert world.calls.count("refused") == 1, "the other replicas would be refused just the same"
    status = world.objects["chipletpools", "shop", "p"]["status"]
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == "ExecutorsFailed"
    assert "violates PodSecurity restricted" in ready["message"]
    assert await world.reconciler.round() <= 5
    world.create = create
    world.pass_time(6)
    await world.settle()
    assert len(world.names()) == 3
    world.run_pods()
    await world.settle()
    assert world.conditions("chipletpools", "p")["Ready"] == ("True", "Ready")


async def test_an_infeasible_contract_is_named_and_changes_no_pool(world):
    await running(world)
    before, replicas = world.names(), world.objects["chipletpools", "shop", "p"]["spec"]["replicas"]
    world.contract("greedy", poolRef={"name": "p"}, resources={"minChiplets": 50})
    world.contract("modest", poolRef={"name": "p"})
    await world.settle()
    assert world.conditions("slocontracts", "greedy")["Feasible"] == ("False", "ResourcesUnavailable")
    assert world.conditions("slocontracts", "modest")["Ready"] == ("True", "Ready")
    assert world.names() == before
    assert world.objects["chipletpools", "shop", "p"]["spec"]["replicas"] == replicas


async def test_a_namespace_that_is_not_allowed_is_told_so(world):
    world.pool(allowedNamespaces=["friends"])
    for namespace in ("friends", "strangers"):
        world.contract("c", namespace, poolRef={"name": "p", "namespace": "shop"})
    await world.settle()
    assert world.conditions("slocontracts", "c", "friends")["ResolvedRefs"][0] == "True"
    assert world.conditions("slocontracts", "c", "strangers")["ResolvedRefs"] == ("False", "PoolNotAllowed")


async def test_events_follow_transitions_and_are_not_repeated(world):
    world.contract("orphan", poolRef={"name": "nowhere"})
    await world.settle()
    world.pass_time(60)
    await world.round(5)
    assert world.reasons().count("PoolNotFound") == 1


async def test_a_profile_is_found_without_anybody_labelling_it(world):
    world.pool(policyRef={"name": "files"}, replicas=1)
    await world.settle()
    assert world.conditions("chipletpools", "p")["Accepted"] == ("False", "ReferenceNotFound")
    world.config_map("files", {"policy.yaml": "{}"})
    world.pass_time(31)
    await world.settle()
    assert world.conditions("chipletpools", "p")["Accepted"] == ("True", "Accepted")
    assert world.names() == ["p-0-1"]


async def test_a_mistake_of_ours_about_one_pool_costs_no_other(world, monkeypatch):
    await running(world)
    tend = PoolTender.tend

    async def stumbling(self, work, pods, now):
        if work.setup.record.name == "odd":
            raise AttributeError("odd")
        await tend(self, work, pods, now)

    monkeypatch.setattr(PoolTender, "tend", stumbling)
    world.pool(name="odd")
    world.pool(replicas=3)
    world.contract("c", poolRef={"name": "p"})
    with pytest.raises(NotWritten, match="pool shop/odd"):
        await world.round()
    assert len(world.names()) == 3
    assert world.conditions("slocontracts", "c")["Ready"] == ("True", "Ready")


class TestCutOff:
    """Whenever the operator dies or the API server goes, the next one finishes without duplicates."""

    async def test_the_api_server_is_away(self, world):
        world.pool()
        world.away = True
        with pytest.raises(NotWritten):
            await world.round()
        world.away = False
        await world.settle()
        assert world.names() == ["p-0-1", "p-1-1"]

    @pytest.mark.parametrize("survived", range(1, 10))
    async def test_killed_after_any_number_of_writes(self, world, survived):
        world.pool(replicas=3)
        world.contract("c", poolRef={"name": "p"})
        left = survived
        apply, create = world.apply, world.create

        async def counted(call, *args, **kwargs):
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return await call(*args, **kwargs)

        world.apply = lambda *a, **k: counted(apply, *a, **k)
        world.create = lambda *a, **k: counted(create, *a, **k)
        with pytest.raises((Killed, BaseExceptionGroup)):
            await world.round(5)
        world.apply, world.create = apply, create
        world.start()
        await world.settle()
        slots = sorted(pod["metadata"]["labels"]["superinfer.dev/slot"] for pod in world.pods())
        assert slots == ["0", "1", "2"]
        world.run_pods()
        await world.settle()
        assert world.conditions("chipletpools", "p")["Ready"] == ("True", "Ready")
        assert world.conditions("slocontracts", "c")["Ready"] == ("True", "Ready")

    async def test_a_watch_that_lags_behind_makes_nothing_twice(self, world):
        tell = world._tell
        world._tell = lambda plural, document, **k: None if plural == "pods" else tell(plural, document, **k)
        world.pool()
        await world.round(4)
        assert world.names() == ["p-0-1", "p-1-1"]

    async def test_a_pools_own_watch_that_lags_behind_repeats_no_event_and_no_name(self, world):
        await running(world, replicas=1)
        tell = world._tell
        world._tell = lambda plural, document, **k: (
            None if plural == "chipletpools" else tell(plural, document, **k)
        )
        world.set_pod("p-0-1", phase="Failed", reason="Evicted", message="m")
        await world.round()
        world.drop(PODS, "shop", "p-0-1")
        for name in world.names():
            world.drop(PODS, "shop", name)
        await world.round(3)
        created = [call for call in world.calls if call.startswith("create pods")]
        assert len(created) == len(set(created)), "a name was used twice"
        told = [(event["reason"], event["action"], event["note"]) for event in world.events]
        assert len(told) == len(set(told)), "an event was repeated"
