"""What EndpointSlices, pools and keys mean to an ingress, without a cluster."""

import base64

import pytest

from superinfer_ingress.cluster.contracts import filed_of
from superinfer_ingress.cluster.endpoints import any_ready, executors_of, ready_replicas, slice_of
from superinfer_ingress.cluster.pools import pool_of
from superinfer_ingress.cluster.view import key_ring_of


def endpoint(pod, address="10.0.0.7", *, ready=True, terminating=False, **more):
    return {
        "addresses": [address],
        "conditions": {"ready": ready, "terminating": terminating},
        "targetRef": {"kind": "Pod", "name": pod},
        **more,
    }


def endpoint_slice(
    *endpoints, pool="smollm", namespace="ml", family="IPv4", ports=({"name": "grpc", "port": 7443},)
):
    labels = {"superinfer.dev/pool": pool} if pool else {}
    return slice_of(
        {
            "metadata": {"name": "s", "namespace": namespace, "labels": labels},
            "addressType": family,
            "endpoints": list(endpoints),
            "ports": list(ports),
        }
    )


def executors(*slices):
    return executors_of(slices, check_names=True)


def test_an_executor_is_a_pod_with_its_pools_name_and_its_fault_domain():
    placed = endpoint("smollm-0-1", nodeName="node-a", zone="zone-1")
    (found,) = executors(endpoint_slice(placed))
    assert (found.name, found.address, found.pool) == ("smollm-0-1", "10.0.0.7:7443", "ml/smollm")
    assert found.fault_domain == ("zone/zone-1", "node/node-a")
    assert found.tls_name == "smollm.ml.pool.superinfer.dev"
    assert not found.leaving


@pytest.mark.parametrize(
    ("one", "address"),
    [
        pytest.param(endpoint_slice(endpoint("e", "fd00::7"), family="IPv6"), "[fd00::7]:7443", id="IPv6"),
        pytest.param(endpoint_slice(endpoint("e"), ports=()), "10.0.0.7:7443", id="no port is named"),
        pytest.param(
            endpoint_slice(
                endpoint("e"), ports=({"name": "metrics", "port": 9}, {"name": "grpc", "port": 8})
            ),
            "10.0.0.7:8",
            id="the port by its name",
        ),
    ],
)
def test_where_its_sidecar_listens(one, address):
    assert [found.address for found in executors(one)] == [address]


def test_one_that_is_not_ready_is_an_executor_and_one_that_terminates_is_leaving():
    found = executors(endpoint_slice(endpoint("starting", ready=False), endpoint("ending", terminating=True)))
    assert [(one.name, one.leaving) for one in found] == [("ending", True), ("starting", False)]


def test_a_pod_in_two_slices_is_one_executor_and_the_better_entry_counts():
    """Slices overlap while they are rebuilt, and a dual-stack pod is in one of each family."""
    old = endpoint_slice(endpoint("e", "10.0.0.1", terminating=True))
    new = endpoint_slice(endpoint("e", "10.0.0.2"))
    six = endpoint_slice(endpoint("e", "fd00::2"), family="IPv6")
    for slices in ((old, new, six), (six, new, old)):
        assert [one.address for one in executors(*slices)] == ["10.0.0.2:7443"]


def test_pools_of_one_name_in_two_namespaces_are_two():
    found = executors(endpoint_slice(endpoint("p-0-1"), namespace="b"), endpoint_slice(endpoint("p-0-1")))
    assert [one.pool for one in found] == ["b/smollm", "ml/smollm"]


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param({"addresses": ["10.0.0.9"]}, id="no pod behind it"),
        pytest.param({**endpoint("e"), "addresses": []}, id="no address yet"),
        pytest.param({**endpoint("e"), "targetRef": {"kind": "Node", "name": "n"}}, id="not a pod"),
    ],
)
def test_what_is_no_pod_is_left_out(strange):
    assert executors(endpoint_slice(strange)) == []


def test_slices_without_a_pool_are_nobodys_executors():
    assert executors(endpoint_slice(endpoint("web-1"), pool="")) == []


def test_replicas_are_the_ready_ones_and_at_least_the_one_that_asks():
    ready = endpoint_slice(endpoint("a"), endpoint("b"), endpoint("c", ready=False), pool="")
    ending = endpoint_slice(endpoint("a"), endpoint("d", terminating=True), pool="")
    assert ready_replicas([ready, ending]) == 2
    assert ready_replicas([]) == 1


def test_conditions_that_are_not_set_mean_ready():
    (silent,) = [endpoint_slice({**endpoint("e"), "conditions": {}})]
    assert any_ready([silent])
    assert not any_ready([endpoint_slice(endpoint("e", terminating=True))])


def test_a_pool_says_who_may_use_it_and_what_is_its_default():
    pool = pool_of(
        {
            "apiVersion": "superinfer.dev/v1alpha1",
            "kind": "ChipletPool",
            "metadata": {
                "name": "smollm",
                "namespace": "ml",
                "uid": "u",
                "labels": {f"tool-{number}": "x" for number in range(100)},
            },
            "spec": {
                "model": {"name": "m"},
                "chiplet": {"shape": "CPU"},
                "allowedNamespaces": ["shop"],
                "defaultContractRef": {"name": "house"},
                "somethingNewer": True,
            },
            "status": {"replicas": "nonsense"},
        }
    )
    assert pool.facts.serves("shop")
    assert pool.facts.serves("ml")
    assert not pool.facts.serves("other")
    assert pool.default_contract == "ml/house"


def test_a_contract_belongs_to_whoever_wrote_it():
    def contract(*managers):
        fields = [
            {"manager": name, "subresource": sub} if sub else {"manager": name} for name, sub in managers
        ]
        return {
            "metadata": {"name": "c", "namespace": "shop", "managedFields": fields},
            "spec": {"tier": "Gold"},
        }

    assert filed_of(contract(("superinfer-ingress", ""), ("superinfer-operator", "status"))).managed
    theirs = filed_of(contract(("kubectl-client-side-apply", ""), ("superinfer-operator", "status")))
    assert not theirs.managed
    assert "kubectl-client-side-apply" in theirs.owned_by
    shared = filed_of(contract(("kubectl-edit", ""), ("superinfer-ingress", "")))
    assert shared.managed


def test_a_contract_that_is_invalid_is_kept_with_what_is_wrong():
    filed = filed_of({"metadata": {"name": "c", "namespace": "shop"}, "spec": {"tier": "Platinum"}})
    assert filed.stored.spec is None
    assert filed.stored.invalid


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"keys.yaml": "%%%"}, id="not base64"),
        pytest.param(
            {"keys.yaml": base64.b64encode(b"keys: [{name: x, sha256: secret-in-the-wrong-place}]").decode()},
            id="not a digest",
        ),
        pytest.param({"keys.yaml": base64.b64encode(b"\xff").decode()}, id="not text"),
    ],
)
def test_keys_that_cannot_be_read_are_an_error_that_holds_no_key(data):
    with pytest.raises(ValueError, match=r".+") as caught:
        key_ring_of({"metadata": {"name": "superinfer-api-keys"}, "data": data}, home="system")
    assert "secret-in-the-wrong-place" not in str(caught.value)


def test_a_secret_without_keys_has_none():
    assert len(key_ring_of({"metadata": {"name": "superinfer-api-keys"}}, home="system")) == 0
