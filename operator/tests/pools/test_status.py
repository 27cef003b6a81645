"""The status of a pool: counts, executors one by one, and why the rest has no place."""

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.api.v1alpha1.pool_status import ChipletPoolStatus
from superinfer_core.placement import (
    Assignment,
    Chiplet,
    Constraint,
    ExecutorPhase,
    Kept,
    NodeRefusal,
    Unplaced,
)
from superinfer_core.placement.outcome import LayoutAdvice
from superinfer_core.pods.settings import PodSettings
from superinfer_operator.placing.setup import set_up
from superinfer_operator.pools.status import PoolOutcome, pool_status, same_status
from superinfer_operator.watching.pods import ExecutorPod
from superinfer_operator.watching.pools import pool_record

NOW = "2026-01-01T00:00:00Z"


def setup(replicas=2, status=None):
    spec = {
        "model": {"name": "m"},
        "engine": {"type": "Stub"},
        "chiplet": {"shape": "GPU"},
        "replicas": replicas,
    }
    metadata = {"name": "p", "namespace": "shop", "uid": "u", "generation": 7}
    document = {"metadata": metadata, "spec": spec, "status": status or {}}
    return set_up(pool_record(document), {}, PodSettings())


SETUP = setup()


def pod(slot, phase=ExecutorPhase.READY, **more):
    chiplet = {
        "node": "n1",
        "resource": "nvidia.com/gpu",
        "devices": [f"GPU-{slot}"],
        "faultDomain": ["zone/a", "node/n1", f"gpu/GPU-{slot}"],
    }
    given = {"revision": SETUP.revision, "chiplet": chiplet} | more
    return ExecutorPod("shop", f"p-{slot}-1", f"u{slot}", "shop/p", slot, 1, phase=phase, **given)


def status(pods, outcome=PoolOutcome(), a_setup=SETUP):  # noqa: B008 - frozen
    return pool_status(a_setup, pods, outcome, before={}, now=NOW)


def test_counts_leave_out_what_is_going():
    found = status([pod(0), pod(1, ExecutorPhase.PENDING), pod(2, terminating=True), pod(3, revision="old")])
    counts = {
        name: found[name] for name in ("replicas", "readyReplicas", "updatedReplicas", "placedReplicas")
    }
    assert counts == {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 2, "placedReplicas": 2}
    assert found["observedGeneration"] == 7
    assert found["engineType"] == "Stub"


def test_the_selector_is_one_that_selects_its_executors():
    assert "superinfer.dev/pool=p" in status([])["selector"].split(",")


def test_the_device_the_kubelet_gave_is_told_instead_of_the_planned_one():
    chiplet = Chiplet(ChipletShape.GPU, "nvidia.com/gpu", 1, ("GPU-9",))
    domain = ("zone/a", "node/n1", "gpu/GPU-9")
    kept = Kept("shop/p-0-1", Assignment("shop/p", 0, "n1", chiplet, domain))
    found = status([pod(0), pod(1)], PoolOutcome(kept=(kept,)))
    assert [item["deviceIDs"] for item in found["chiplets"]] == [["GPU-9"], ["GPU-1"]]
    assert found["chiplets"][0]["faultDomain"] == ["gpu/GPU-9", "node/n1", "zone/a"]


def test_each_executor_is_listed_with_its_hardware_smallest_fault_domain_first():
    found = status([pod(0), pod(1, ExecutorPhase.PENDING, scheduled=True), pod(2, terminating=True)])
    assert [chiplet["state"] for chiplet in found["chiplets"]] == ["Ready", "Starting", "Draining"]
    assert found["chiplets"][0] == {
        "executor": "p-0-1",
        "node": "n1",
        "resource": "nvidia.com/gpu",
        "deviceIDs": ["GPU-0"],
        "faultDomain": ["gpu/GPU-0", "node/n1", "zone/a"],
        "state": "Ready",
    }


def test_what_has_no_place_is_told_node_by_node_for_the_slots_that_are_free():
    refusals = (
        NodeRefusal(Constraint.DEVICES_IN_USE, "8 of 8 are taken", ("n1", "n2")),
        NodeRefusal(Constraint.NODE_CORDONED, "cordoned", ("n3",)),
    )
    unplaced = Unplaced("shop/p", 2, Constraint.DEVICES_IN_USE, "0/3 nodes can take one", refusals)
    found = status([pod(1)], PoolOutcome(unplaced=(unplaced,)), setup(replicas=3))
    assert [(u["slot"], u["reason"]) for u in found["unplaced"]] == [(0, "DevicesInUse"), (2, "DevicesInUse")]
    assert {n["node"]: n["constraint"] for n in found["unplaced"][0]["nodes"]} == {
        "n1": "DevicesInUse",
        "n2": "DevicesInUse",
        "n3": "NodeCordoned",
    }
    assert found["unplacedReplicas"] == 2


def test_status_stays_within_what_the_api_server_takes():
    nodes = tuple(f"n{i}" for i in range(2000))
    refusals = (NodeRefusal(Constraint.DEVICES_IN_USE, "x" * 5000, nodes),)
    unplaced = Unplaced("shop/p", 900, Constraint.DEVICES_IN_USE, "y" * 5000, refusals)
    found = status([pod(i) for i in range(1000)], PoolOutcome(unplaced=(unplaced,)), setup(replicas=2000))
    ChipletPoolStatus.model_validate(found)
    assert len(found["chiplets"]) == 512
    assert found["replicas"] == 1000


def test_only_a_difference_of_more_than_times_is_written():
    before = status([pod(0)])
    later = pool_status(SETUP, [pod(0)], PoolOutcome(), before=before, now="2027-01-01T00:00:00Z")
    assert same_status(before, later)
    assert not same_status(before, status([pod(0, ExecutorPhase.PENDING)]))


def test_advice_about_layouts_is_told_to_the_pools_it_helps():
    advice = LayoutAdvice("n1", "all", "all-3g.71gb", ("3g.71gb", "3g.71gb"), ("shop/p",), "room for 2")
    found = status([], PoolOutcome(advice=(advice,)))
    assert found["migConfigAdvice"] == [
        {
            "node": "n1",
            "device": "all",
            "config": "all-3g.71gb",
            "profiles": ["3g.71gb", "3g.71gb"],
            "message": "room for 2",
        }
    ]
