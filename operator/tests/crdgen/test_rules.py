"""Every rule across fields: a case the real API server accepts, one it refuses, and core agrees with both."""

from typing import Any

import pytest

from crdgen.samples import CONTRACT, POOL, REMOVE, SMALL_POOL, Document, changed
from superinfer_core.contract.parse import parse_contract, parse_pool
from superinfer_core.contract.problems import ContractInvalid
from superinfer_kube.testing.apiserver import ApiServer
from superinfer_operator.crdgen.documents import definition
from superinfer_operator.crdgen.kinds import KINDS

pytestmark = pytest.mark.apiserver

Changes = dict[str, Any]
MEMORY: Changes = {"weightsMiB": 257, "kvBytesPerToken": 23040}
ON_GPU: Changes = {"spec.chiplet.shape": "GPU", "spec.model.memory": MEMORY}
MIG: Changes = {"spec.chiplet": {"shape": "MIG", "profile": "3g.71gb"}}

# (start, a change that is accepted, one that is refused, words of the refusal)
FIELDS = [
    pytest.param(
        CONTRACT,
        {"spec.objectives": [{"metric": "TTFT", "percentile": p, "targetMs": p} for p in (90, 99)]},
        {"spec.objectives": [{"metric": "TTFT", "percentile": p, "targetMs": 200 - p} for p in (90, 99)]},
        "looser than one of the same metric",
        id="objectives: a lower percentile may not be looser",
    ),
    pytest.param(
        CONTRACT, {"spec.window": "10s"}, {"spec.window": "9s"}, "between 10s and 30d", id="window: least"
    ),
    pytest.param(
        CONTRACT, {"spec.window": "30d"}, {"spec.window": "31d"}, "between 10s and 30d", id="window: most"
    ),
    pytest.param(
        CONTRACT,
        {"metadata.name": "checkout.chat"},
        {"metadata.name": "checkout.chat", "spec.serviceID": REMOVE},
        "spec.serviceID is needed",
        id="serviceID: a name with dots is none",
    ),
    pytest.param(
        CONTRACT,
        {"metadata.name": "a" * 63, "spec.serviceID": REMOVE},
        {"metadata.name": "a" * 64, "spec.serviceID": REMOVE},
        "spec.serviceID is needed",
        id="serviceID: a long name is none",
    ),
    pytest.param(
        CONTRACT,
        {"spec.parentRef.name": "other"},
        {"spec.parentRef.name": "checkout-chat"},
        "spec.parentRef refers to the contract itself",
        id="parentRef: not itself",
    ),
    pytest.param(
        CONTRACT,
        {"spec.fallbackRef.name": "other"},
        {"spec.fallbackRef.name": "checkout-chat"},
        "spec.fallbackRef refers to the contract itself",
        id="fallbackRef: not itself",
    ),
    pytest.param(
        SMALL_POOL, MIG, {"spec.chiplet": {"shape": "MIG"}}, "shape MIG needs a profile", id="MIG: a profile"
    ),
    pytest.param(
        SMALL_POOL,
        {"spec.chiplet": {"shape": "GPU"}},
        {"spec.chiplet": {"shape": "GPU", "profile": "3g.71gb"}},
        "a profile is only for shape MIG",
        id="profile: only with MIG",
    ),
    pytest.param(
        SMALL_POOL,
        {"spec.chiplet": {"shape": "MIG", "profile": "3g.71gb", "count": 1}},
        {"spec.chiplet": {"shape": "MIG", "profile": "3g.71gb", "count": 2}},
        "only whole GPUs can be grouped",
        id="count: only whole GPUs",
    ),
    pytest.param(
        SMALL_POOL,
        {"spec.chiplet": {"shape": "MIG", "profile": "3g.71gb", "interconnect": "Any"}},
        {"spec.chiplet": {"shape": "MIG", "profile": "3g.71gb", "interconnect": "NVLinkRequired"}},
        "only whole GPUs can be linked",
        id="interconnect: MIG has none",
    ),
    pytest.param(
        SMALL_POOL,
        {"spec.chiplet.shape": "GPU", "spec.model.memory": {**MEMORY, "kvTokens": 512}},
        {"spec.model.memory": {**MEMORY, "kvTokens": 512}},
        "model.memory is GPU memory, and shape CPU has none",
        id="memory: only where there are GPUs",
    ),
    pytest.param(
        SMALL_POOL,
        {**ON_GPU, "spec.engine": {"maxModelLen": 512, "maxNumSeqs": 4}},
        {**ON_GPU, "spec.engine": {"maxModelLen": 512}},
        "model.memory does not say how much KV cache is needed",
        id="memory: of how many tokens",
    ),
    pytest.param(
        POOL,
        {"spec.model.memory.kvTokens": 2048},
        {"spec.model.memory.kvTokens": 2047},
        "model.memory.kvTokens is below engine.maxModelLen",
        id="memory: the longest request fits",
    ),
    pytest.param(
        POOL,
        {"spec.autoscaling": {"minReplicas": 4, "maxReplicas": 4}},
        {"spec.autoscaling": {"minReplicas": 5, "maxReplicas": 4}},
        "minReplicas is above maxReplicas",
        id="autoscaling: in order",
    ),
    pytest.param(
        SMALL_POOL,
        {**MIG, "spec.isolation": "Instance"},
        {"spec.isolation": "Instance"},
        "isolation other than Shared is only for MIG and GPU chiplets",
        id="isolation: a CPU gives none",
    ),
    pytest.param(
        SMALL_POOL,
        {"spec.chiplet.shape": "GPU", "spec.isolation": "Device"},
        {**MIG, "spec.isolation": "Device"},
        "isolation Device is only for whole GPUs",
        id="isolation: a MIG instance shares its GPU",
    ),
    pytest.param(
        SMALL_POOL,
        {**MIG, "spec.placement": {"allocation": "DRA"}},
        {"spec.placement": {"allocation": "DRA"}},
        "allocation DRA is only for MIG and GPU chiplets",
        id="allocation: nothing to claim on a CPU",
    ),
    pytest.param(
        POOL,
        {"spec.checkpoint": {"peers": "None", "replicas": 0}},
        {"spec.checkpoint": {"peers": "None"}},
        "peers None leaves nobody to keep copies",
        id="checkpoint: copies need a peer",
    ),
    pytest.param(
        POOL,
        {"spec.placement.tolerations": [{"operator": "Exists"}]},
        {"spec.placement.tolerations": [{"effect": "NoSchedule"}]},
        "without a key the operator must be Exists",
        id="toleration: every key",
    ),
    pytest.param(
        POOL,
        {"spec.placement.tolerations": [{"key": "k", "value": "v"}]},
        {"spec.placement.tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
        "a value is only for operator Equal",
        id="toleration: a value to compare with",
    ),
    pytest.param(
        POOL,
        {"spec.placement.tolerations": [{"key": "k", "effect": "NoExecute", "tolerationSeconds": 1}]},
        {"spec.placement.tolerations": [{"key": "k", "effect": "NoSchedule", "tolerationSeconds": 1}]},
        "tolerationSeconds is only for effect NoExecute",
        id="toleration: seconds until eviction",
    ),
    pytest.param(
        POOL,
        {"spec.podTemplate.metadata.labels": {"example.com/pool": "x"}},
        {"spec.podTemplate.metadata.labels": {"superinfer.dev/pool": "x"}},
        "labels of superinfer.dev are SuperInfer's own",
        id="podTemplate: our labels are ours",
    ),
    pytest.param(
        SMALL_POOL,
        {"metadata.name": "p" * 40},
        {"metadata.name": "p" * 41},
        "metadata.name must be at most 40",
        id="pool name: length",
    ),
    pytest.param(
        SMALL_POOL,
        {"metadata.name": "p7"},
        {"metadata.name": "7p"},
        "metadata.name must be at most 40",
        id="pool name: a letter first",
    ),
]

# The same for lists whose items the API server tells apart.
TWICE = [
    pytest.param(POOL, {"spec.placement.spread": ["Node", "Node"]}, "Duplicate value", id="spread"),
    pytest.param(POOL, {"spec.allowedNamespaces": ["shop", "shop"]}, "Duplicate value", id="namespaces"),
    pytest.param(POOL, {"spec.checkpoint.tiers": ["Gold", "Gold"]}, "Duplicate value", id="tiers"),
    pytest.param(
        POOL, {"spec.engine.env": [{"name": "A"}, {"name": "A", "value": "b"}]}, "Duplicate value", id="env"
    ),
    pytest.param(
        CONTRACT,
        {"spec.objectives": [{"metric": "TTFT", "percentile": 99, "targetMs": ms} for ms in (5, 6)]},
        "Duplicate value",
        id="objectives",
    ),
]

# (start, a change of the existing object that is accepted, one that is refused, words of the refusal)
TRANSITIONS = [
    pytest.param(
        CONTRACT,
        {"spec.serviceID": REMOVE, "spec.tier": "Silver"},
        {"spec.serviceID": "other"},
        "spec.serviceID cannot be changed",
        id="serviceID stays (the name means the same)",
    ),
    pytest.param(
        POOL,
        {"spec.model.source.path": "/models/v2", "spec.engine.image": "example.com/vllm:2"},
        {"spec.model.name": "other"},
        "model.name cannot be changed",
        id="model name stays; image and weights may change",
    ),
    pytest.param(
        POOL,
        {"spec.chiplet.interconnect": "Any"},
        {"spec.chiplet": {"shape": "MIG", "profile": "3g.71gb"}, "spec.isolation": "Shared"},
        "chiplet.shape cannot be changed",
        id="shape stays",
    ),
    pytest.param(
        changed(SMALL_POOL, MIG),
        {"spec.replicas": 3},
        {"spec.chiplet.profile": "1g.18gb"},
        "chiplet.profile cannot be changed",
        id="profile stays",
    ),
    pytest.param(
        changed(SMALL_POOL, {"spec.chiplet": {"shape": "GPU"}}),
        {"spec.chiplet.count": 1},
        {"spec.chiplet.count": 2},
        "chiplet.count cannot be changed",
        id="count stays, and unset means 1",
    ),
    pytest.param(
        POOL,
        {"spec.placement.spread": ["Zone"]},
        {"spec.placement.allocation": "DRA"},
        "placement.allocation cannot be changed",
        id="allocation stays",
    ),
]


def collection(document: Document, namespace: str) -> str:
    plural = {"SLOContract": "slocontracts", "ChipletPool": "chipletpools"}[document["kind"]]
    return f"/apis/superinfer.dev/v1alpha1/namespaces/{namespace}/{plural}"


def create(server: ApiServer, namespace: str, document: Document, query: str = "") -> tuple[int, str]:
    code, answer = server.request(
        "POST", collection(document, namespace) + f"?fieldValidation=Strict{query}", document
    )
    return code, str(answer.get("message", ""))


def refused_by_core(document: Document) -> bool:
    try:
        parse_contract(document) if document["kind"] == "SLOContract" else parse_pool(document)
    except ContractInvalid:
        return True
    return False


@pytest.mark.parametrize(("start", "accepted", "refused", "words"), FIELDS)
def test_a_rule_across_fields(
    superinfer_api: ApiServer,
    namespace: str,
    start: Document,
    accepted: Changes,
    refused: Changes,
    words: str,
) -> None:
    good, bad = changed(start, accepted), changed(start, refused)
    assert create(superinfer_api, namespace, good, "&dryRun=All") == (201, "")
    code, message = create(superinfer_api, namespace, bad, "&dryRun=All")
    assert code == 422
    assert words in message
    assert (refused_by_core(good), refused_by_core(bad)) == (False, True)


@pytest.mark.parametrize(("start", "refused", "words"), TWICE)
def test_nothing_is_there_twice(
    superinfer_api: ApiServer, namespace: str, start: Document, refused: Changes, words: str
) -> None:
    bad = changed(start, refused)
    code, message = create(superinfer_api, namespace, bad, "&dryRun=All")
    assert code == 422
    assert words in message
    assert refused_by_core(bad)


@pytest.mark.parametrize(("start", "accepted", "refused", "words"), TRANSITIONS)
def test_what_cannot_be_changed(
    superinfer_api: ApiServer,
    namespace: str,
    start: Document,
    accepted: Changes,
    refused: Changes,
    words: str,
) -> None:
    assert create(superinfer_api, namespace, start) == (201, "")
    path = f"{collection(start, namespace)}/{start['metadata']['name']}"
    _, stored = superinfer_api.request("GET", path)
    code, answer = superinfer_api.request("PUT", path, changed(stored, refused))
    assert code == 422, answer
    assert words in answer["message"]
    code, answer = superinfer_api.request("PUT", path, changed(stored, accepted))
    assert code == 200, answer


def test_no_rule_is_without_a_case() -> None:
    told = {rule["message"] for kind in KINDS for rule in _rules(definition(kind))}
    tried = [str(case.values[3]) for case in (*FIELDS, *TRANSITIONS)]
    assert sorted(message for message in told if not any(words in message for words in tried)) == []


def _rules(node: Any) -> list[dict[str, str]]:
    if isinstance(node, list):
        return [rule for item in node for rule in _rules(item)]
    if not isinstance(node, dict):
        return []
    return list(node.get("x-kubernetes-validations", [])) + [
        rule for value in node.values() for rule in _rules(value) if value is not node
    ]
