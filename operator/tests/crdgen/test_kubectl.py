"""What a person sees with kubectl: columns, explanations, scale, and that status is not the user's."""

from typing import Any

import pytest

from crdgen.samples import CONTRACT, NODE, REMOVE, SMALL_POOL, changed
from superinfer_core.api.v1alpha1.pool_status import (
    MAX_CHIPLETS,
    MAX_UNPLACED,
    MAX_UNPLACED_NODES,
    ChipletPoolStatus,
    ChipletState,
    ChipletStatus,
    NodeRefusal,
    UnplacedStatus,
)
from superinfer_core.contract.parse import stored_from_resource
from superinfer_core.contract.resolution import resolve_contracts
from superinfer_core.contract.status import effective_status
from superinfer_kube.testing.apiserver import ApiServer
from superinfer_kube.testing.binaries import KUBECTL, missing

pytestmark = pytest.mark.apiserver

BASE = "/apis/superinfer.dev/v1alpha1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "m", "observedGeneration": 1}


def row(server: ApiServer, path: str) -> dict[str, Any]:
    """One object as a row of `kubectl get -o wide`."""
    _, table = server.request("GET", path, accept=TABLE)
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def store(server: ApiServer, collection: str, document: dict[str, Any], status: dict[str, Any]) -> str:
    code, answer = server.request("POST", collection, document)
    assert code == 201, answer
    path = f"{collection}/{document['metadata']['name']}"
    code, answer = server.apply(
        f"{path}/status",
        {
            "apiVersion": document["apiVersion"],
            "kind": document["kind"],
            "metadata": {"name": document["metadata"]["name"]},
            "status": status,
        },
    )
    assert code == 200, answer
    return path


def test_a_contract_shows_what_it_is_held_to(superinfer_api: ApiServer, namespace: str) -> None:
    resolved = resolve_contracts([stored_from_resource(changed(CONTRACT, {"spec.parentRef": REMOVE}))])
    effective = effective_status(next(iter(resolved.contracts.values())))
    assert effective is not None
    path = store(
        superinfer_api,
        f"{BASE}/namespaces/{namespace}/slocontracts",
        CONTRACT,
        {
            "conditions": [READY],
            "effective": effective.model_dump(mode="json", exclude_none=True),
            "attainment": {"fulfilled": "Kept"},
        },
    )
    shown = row(superinfer_api, path)
    del shown["Age"]
    assert shown == {
        "Name": "checkout-chat",
        "Pool": "smollm",
        "Tier": "Gold",
        "TTFT": "300",
        "ITL": "40",
        "E2E": "2000",
        "Kept": "Kept",
        "Ready": "True",
        "Reason": "Ready",
        "Parent": None,
    }


def test_a_pool_shows_what_serves(superinfer_api: ApiServer, namespace: str) -> None:
    path = store(
        superinfer_api,
        f"{BASE}/namespaces/{namespace}/chipletpools",
        changed(SMALL_POOL, {"spec.replicas": 3}),
        {
            "conditions": [READY],
            "replicas": 3,
            "readyReplicas": 2,
            "unplacedReplicas": 0,
            "engineType": "Stub",
        },
    )
    shown = row(superinfer_api, path)
    assert (shown["Model"], shown["Shape"], shown["Wanted"], shown["Up"]) == ("m", "CPU", 3, 2)
    assert (shown["Ready"], shown["Serving"], shown["Engine"]) == ("True", None, "Stub")


def test_a_node_shows_its_gpus(superinfer_api: ApiServer) -> None:
    node = changed(NODE, {"metadata.name": "node-with-columns"})
    path = store(superinfer_api, f"{BASE}/nodetopologies", node, NODE["status"])
    shown = row(superinfer_api, path)
    assert (shown["Product"], shown["GPUs"], shown["Healthy"], shown["Source"]) == (
        "NVIDIA-H200",
        2,
        1,
        "Mock",
    )


def test_status_is_written_only_as_status(superinfer_api: ApiServer, namespace: str) -> None:
    collection = f"{BASE}/namespaces/{namespace}/chipletpools"
    code, stored = superinfer_api.request(
        "POST", collection, changed(SMALL_POOL, {"status": {"replicas": 7}})
    )
    assert code == 201
    assert "status" not in stored
    path = f"{collection}/small"
    store_generation = stored["metadata"]["generation"]
    _, after = superinfer_api.request(
        "PATCH", f"{path}/status", {"status": {"replicas": 7}}, content_type="application/merge-patch+json"
    )
    assert after["status"] == {"replicas": 7}
    assert after["metadata"]["generation"] == store_generation


def test_defaults_are_written_into_the_object(superinfer_api: ApiServer, namespace: str) -> None:
    _, stored = superinfer_api.request("POST", f"{BASE}/namespaces/{namespace}/chipletpools", SMALL_POOL)
    assert stored["spec"] == {
        "model": {"name": "m"},
        "chiplet": {"shape": "CPU"},
        "engine": {"type": "VLLM"},
        "placement": {"allocation": "DevicePlugin"},
        "replicas": 1,
        "isolation": "Shared",
        "drainSeconds": 60,
    }


def test_a_contract_keeps_out_what_it_would_inherit(superinfer_api: ApiServer, namespace: str) -> None:
    bare = changed(CONTRACT, {"spec": {}})
    _, stored = superinfer_api.request("POST", f"{BASE}/namespaces/{namespace}/slocontracts", bare)
    assert stored["spec"] == {}


def test_a_pool_scales_by_the_scale_subresource(superinfer_api: ApiServer, namespace: str) -> None:
    path = store(
        superinfer_api,
        f"{BASE}/namespaces/{namespace}/chipletpools",
        SMALL_POOL,
        {"replicas": 1, "selector": "superinfer.dev/pool=small"},
    )
    _, scale = superinfer_api.request("GET", f"{path}/scale")
    assert scale["status"] == {"replicas": 1, "selector": "superinfer.dev/pool=small"}
    superinfer_api.request(
        "PATCH", f"{path}/scale", {"spec": {"replicas": 4}}, content_type="application/merge-patch+json"
    )
    _, pool = superinfer_api.request("GET", path)
    assert pool["spec"]["replicas"] == 4


def test_what_the_pod_template_says_is_kept_and_what_nobody_knows_is_not(
    superinfer_api: ApiServer, namespace: str
) -> None:
    pod = {"volumes": [{"name": "m", "hostPath": {"path": "/m"}}]}
    document = changed(SMALL_POOL, {"spec.podTemplate": {"spec": pod}, "spec.unknown": 1})
    collection = f"{BASE}/namespaces/{namespace}/chipletpools"
    code, answer = superinfer_api.request("POST", f"{collection}?fieldValidation=Strict", document)
    assert code == 400
    assert 'unknown field "spec.unknown"' in answer["message"]
    _, stored = superinfer_api.request("POST", f"{collection}?fieldValidation=Ignore", document)
    assert stored["spec"]["podTemplate"]["spec"] == pod
    assert "unknown" not in stored["spec"]


def test_two_writers_of_conditions_do_not_undo_each_other(superinfer_api: ApiServer, namespace: str) -> None:
    path = store(
        superinfer_api, f"{BASE}/namespaces/{namespace}/chipletpools", SMALL_POOL, {"conditions": [READY]}
    )
    document = {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "ChipletPool",
        "metadata": {"name": "small"},
        "status": {"conditions": [READY | {"type": "Serving"}]},
    }
    code, answer = superinfer_api.apply(f"{path}/status", document, manager="somebody-else")
    assert code == 200, answer
    assert [condition["type"] for condition in answer["status"]["conditions"]] == ["Ready", "Serving"]


@pytest.mark.skipif(bool(missing(KUBECTL)), reason="kubectl not built: make apiserver")
@pytest.mark.parametrize(
    ("what", "words"),
    [
        pytest.param("slo.spec.objectives.metric", "mean time between tokens", id="a field of a list"),
        pytest.param(
            "slo.spec.onInfeasible", "refuse it at once (425)", id="an enum says what each word does"
        ),
        pytest.param("chippool.spec.chiplet", "GPU: whole GPUs", id="a short name"),
        pytest.param("nodetopo.status.gpus.health", "recoveryAction", id="a status"),
    ],
)
def test_kubectl_explains(superinfer_api: ApiServer, what: str, words: str) -> None:
    assert words in " ".join(superinfer_api.kubectl("explain", what).split())


@pytest.mark.skipif(bool(missing(KUBECTL)), reason="kubectl not built: make apiserver")
def test_the_category_lists_all_kinds(superinfer_api: ApiServer, namespace: str) -> None:
    superinfer_api.request("POST", f"{BASE}/namespaces/{namespace}/chipletpools", SMALL_POOL)
    superinfer_api.request("POST", f"{BASE}/namespaces/{namespace}/slocontracts", CONTRACT)
    listed = superinfer_api.kubectl("get", "superinfer", "-n", namespace, "-o", "name").split()
    assert {"chipletpool.superinfer.dev/small", "slocontract.superinfer.dev/checkout-chat"} <= set(listed)


@pytest.mark.parametrize(
    ("plural", "selector", "want"),
    [
        pytest.param("slocontracts", "spec.poolRef.name=smollm", ["checkout-chat"], id="contracts of a pool"),
        pytest.param("slocontracts", "spec.tier=Bronze", [], id="contracts of a tier"),
        pytest.param("chipletpools", "spec.chiplet.shape=CPU", ["small"], id="pools of a shape"),
    ],
)
def test_objects_can_be_selected_by_what_matters(
    superinfer_api: ApiServer, namespace: str, plural: str, selector: str, want: list[str]
) -> None:
    base = f"{BASE}/namespaces/{namespace}"
    superinfer_api.request("POST", f"{base}/chipletpools", SMALL_POOL)
    superinfer_api.request("POST", f"{base}/slocontracts", CONTRACT)
    _, found = superinfer_api.request("GET", f"{base}/{plural}?fieldSelector={selector}")
    assert [item["metadata"]["name"] for item in found["items"]] == want


def test_a_reference_has_one_owner(superinfer_api: ApiServer, namespace: str) -> None:
    path = f"{BASE}/namespaces/{namespace}/slocontracts/shared"
    head = {"apiVersion": "superinfer.dev/v1alpha1", "kind": "SLOContract", "metadata": {"name": "shared"}}
    one = head | {"spec": {"poolRef": {"name": "a", "namespace": "models"}}}
    other = head | {"spec": {"poolRef": {"name": "b"}}}
    assert superinfer_api.apply(path, one, manager="one")[0] == 201
    _, after = superinfer_api.apply(path, other, manager="other")
    assert after["spec"]["poolRef"] == {"name": "b"}


def test_the_status_of_a_large_and_badly_placed_pool_fits(superinfer_api: ApiServer, namespace: str) -> None:
    long_name = "n" * 63
    status = ChipletPoolStatus(
        replicas=10_000,
        ready_replicas=512,
        chiplets=[
            ChipletStatus(
                executor=f"{'p' * 40}-{slot}-1",
                node=f"{long_name}-{slot}",
                resource="nvidia.com/mig-3g.71gb",
                device_ids=[f"MIG-{'u' * 36}" for _ in range(8)],
                fault_domain=[f"level/{long_name}" for _ in range(5)],
                state=ChipletState.READY,
            )
            for slot in range(MAX_CHIPLETS)
        ],
        unplaced=[
            UnplacedStatus(
                slot=slot,
                reason="DevicesInUse",
                message="m" * 1024,
                nodes=[
                    NodeRefusal(node=f"{long_name}-{node}", constraint="DevicesInUse", message="m" * 1024)
                    for node in range(MAX_UNPLACED_NODES)
                ],
            )
            for slot in range(MAX_UNPLACED)
        ],
    )
    path = store(
        superinfer_api,
        f"{BASE}/namespaces/{namespace}/chipletpools",
        SMALL_POOL,
        status.model_dump(mode="json", exclude_none=True),
    )
    _, stored = superinfer_api.request("GET", path)
    assert len(stored["status"]["chiplets"]) == MAX_CHIPLETS
