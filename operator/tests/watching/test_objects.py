"""Nodes, Secrets, ConfigMaps and what the operator made, as facts."""

import base64
import hashlib

import pytest

from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.pods.beside import executors_service
from superinfer_operator.watching.contracts import contract_record, status_digest
from superinfer_operator.watching.nodes import node_facts
from superinfer_operator.watching.objects import intent_digest, keys_record, secret_record
from superinfer_operator.watching.pools import pool_record


def node(spec=None, **status):
    return node_facts({"metadata": {"name": "n", "uid": "u"}, "spec": spec or {}, "status": status})


def test_a_node_that_is_ready():
    found = node(
        conditions=[{"type": "Ready", "status": "True"}],
        allocatable={"cpu": "3920m", "memory": "1Gi", "nvidia.com/gpu": "8", "hugepages-2Mi": "0"},
    )
    assert found.ready
    assert found.not_ready_since is None
    assert found.allocatable == {"cpu": 3920, "memory": 2**30, "nvidia.com/gpu": 8}


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param(
            [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "1970-01-01T00:01:40Z"}],
            id="its kubelet is silent",
        ),
        pytest.param(
            [{"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:01:40Z"}],
            id="its kubelet says so",
        ),
    ],
)
def test_a_node_that_is_not_ready_says_since_when(conditions):
    found = node(conditions=conditions)
    assert (found.ready, found.not_ready_since) == (False, 100.0)


def test_taints_that_only_repeat_a_cordon_or_readiness_are_left_out():
    found = node(
        {
            "unschedulable": True,
            "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                {"key": "team", "value": "shop", "effect": "NoSchedule"},
            ],
        }
    )
    assert not found.schedulable
    assert [(taint.key, taint.value) for taint in found.taints] == [("team", "shop")]


def _secret(items, **metadata):
    data = {name: base64.b64encode(value).decode() for name, value in items.items()}
    return {"metadata": {"name": "s", "namespace": "shop", **metadata}, "data": data}


def test_keys_are_kept_as_digests_alone():
    record = keys_record(_secret({"b": b"sk-2\n", "a": b"sk-1", "empty": b" "}))
    assert [name for name, _ in record.entries] == ["a", "b"]
    assert record.entries[1][1] == hashlib.sha256(b"sk-2").hexdigest(), (
        "a newline at the end is no part of a key"
    )
    assert "sk-1" not in repr(record)
    assert not record.admin
    assert keys_record(_secret({}, annotations={"superinfer.dev/admin": "true"})).admin


def test_a_secret_shows_whose_it_is_and_never_its_items():
    ours = secret_record(
        _secret({"tls.key": b"key"}, labels={"app.kubernetes.io/managed-by": "superinfer-operator"})
    )
    assert ours.managed
    assert ours.items == {"tls.key": b"key"}
    assert "key'" not in repr(ours)
    assert not secret_record(_secret({})).managed


def test_a_service_is_compared_by_what_the_operator_wants_of_it():
    pool = ChipletPool.model_validate(
        {
            "metadata": {"name": "p", "namespace": "shop", "uid": "u"},
            "spec": {"model": {"name": "m"}, "chiplet": {"shape": "CPU"}},
        }
    )
    wanted = executors_service(pool)
    labels = {**wanted["metadata"]["labels"], "team": "shop"}
    stored = {
        "metadata": {**wanted["metadata"], "labels": labels},
        "spec": {**wanted["spec"], "sessionAffinity": "None", "clusterIPs": ["None"]},
    }
    del stored["spec"]["publishNotReadyAddresses"]
    assert intent_digest(stored) == intent_digest(wanted)
    stored["spec"]["publishNotReadyAddresses"] = True
    assert intent_digest(stored) != intent_digest(wanted)


def test_a_pool_that_cannot_be_read_is_kept_with_its_problems():
    record = pool_record(
        {"metadata": {"name": "p", "namespace": "shop", "generation": 3}, "spec": {"model": {"name": "m"}}}
    )
    assert record.pool is None
    assert record.problems[0].field == "spec.chiplet"
    assert (record.key, record.generation) == ("shop/p", 3)


@pytest.mark.parametrize(
    ("annotation", "want"),
    [
        pytest.param('{"0": 3, "7": 1}', {0: 3, 7: 1}, id="as it was written"),
        pytest.param("[]", {}, id="edited by hand into a list"),
        pytest.param("nonsense", {}, id="edited by hand into nonsense"),
    ],
)
def test_incarnations_that_were_used(annotation, want):
    metadata = {"name": "p", "namespace": "s", "annotations": {"superinfer.dev/incarnations": annotation}}
    assert pool_record({"metadata": metadata, "spec": {}}).incarnations == want


def test_a_contract_is_kept_as_what_resolution_takes_and_a_digest():
    conditions = [
        {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "SomebodyElses", "status": "True", "reason": "X"},
    ]
    record = contract_record(
        {
            "metadata": {"name": "c", "namespace": "shop", "uid": "u", "generation": 2},
            "spec": {},
            "status": {"conditions": conditions, "observedGeneration": 2},
        }
    )
    assert record.key == "shop/c"
    assert [(c.type, c.last_transition_time) for c in record.conditions] == [
        ("Ready", "2026-01-01T00:00:00Z"),
        ("SomebodyElses", ""),
    ]


def test_a_digest_forgets_times_and_order_and_nothing_else():
    def status(ready="True", at="2026-01-01T00:00:00Z", kept="99"):
        return {
            "conditions": [
                {"type": "Accepted", "status": "True", "lastTransitionTime": at},
                {"type": "Ready", "status": ready, "lastTransitionTime": at},
            ],
            "attainment": {"fulfilled": "Kept", "offered": int(kept), "updatedAt": at},
        }

    later = status(at="2027-01-01T00:00:00Z")
    later["conditions"].reverse()
    assert status_digest(status()) == status_digest(later)
    assert status_digest(status()) != status_digest(status(ready="False"))
    assert status_digest(status()) != status_digest(status(kept="98"))
