"""Contracts from documents: the long form, its mistakes and what a user is told about each."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.api.v1alpha1.slocontract import SLOContract
from superinfer_core.contract.document import load_document, load_documents
from superinfer_core.contract.parse import (
    document_of,
    parse_contract,
    parse_pool,
    read_contract,
    stored_from_resource,
)
from superinfer_core.contract.problems import ContractInvalid, FieldProblem
from superinfer_core.slo import Metric, OnInfeasible, Tier

SAMPLES = Path(__file__).parents[3] / "manifests" / "samples" / "contracts"

FULL = """
apiVersion: superinfer.dev/v1alpha1
kind: SLOContract
metadata: {name: checkout-chat, namespace: shop}
spec:
  serviceID: checkout-chat
  parentRef: {name: checkout}
  poolRef: {name: smollm}
  tier: Gold
  priority: 100
  objectives:
    - {metric: TTFT, percentile: 99, targetMs: 300}
    - {metric: ITL,  percentile: 99, targetMs: 40}
    - {metric: E2E,  percentile: 95, targetMs: 2000}
  maxJitterMs: 50
  availability: "99.95"
  window: 1h
  onInfeasible: Reject
  fallbackRef: {name: checkout-bronze}
  quota: {requestsPerSecond: 20, tokensPerMinute: 100000, concurrency: 8}
  resources: {minChiplets: 1, product: NVIDIA-H200, memoryMiB: 16384, isolation: Shared}
  access: {apiKeySecretRef: {name: checkout-keys}}
"""

POOL = """
apiVersion: superinfer.dev/v1alpha1
kind: ChipletPool
spec:
  model: {name: smollm2, source: {path: /models/smollm2}}
  engine: {type: VLLM, image: "...", maxModelLen: 2048, maxNumSeqs: 8, args: [], env: []}
  chiplet: {shape: MIG, profile: 3g.71gb}
  replicas: 2
  autoscaling: {minReplicas: 1, maxReplicas: 4}
  isolation: Instance
  profileRef: {name: smollm2-h200}
  allowedNamespaces: [shop]
  placement: {allocation: DevicePlugin, spread: [Node, GPU], nodeSelector: {}, tolerations: []}
  checkpoint: {intervalMs: 50, replicas: 1, budgetMBps: 400, memoryMiB: 4096, tiers: [Gold, Silver],
               peers: OtherNode, retainSeconds: 0}
"""


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "SLOContract",
        "metadata": {"name": "checkout", "namespace": "shop"},
        "spec": spec,
    }


def problems_of(document: Any) -> dict[str, FieldProblem]:
    with pytest.raises(ContractInvalid) as refused:
        parse_contract(document)
    return {problem.field: problem for problem in refused.value.problems}


def test_a_contract_with_everything_is_read_field_by_field() -> None:
    contract = parse_contract(load_document(FULL))
    spec = contract.spec
    assert (contract.name, contract.service_id, contract.metadata.namespace) == (
        "checkout-chat",
        "checkout-chat",
        "shop",
    )
    assert spec.tier is Tier.GOLD
    assert spec.on_infeasible is OnInfeasible.REJECT
    assert [(o.metric, o.percentile, o.target_ms) for o in spec.objectives or []] == [
        (Metric.TTFT, 99, 300),
        (Metric.ITL, 99, 40),
        (Metric.E2E, 95, 2000),
    ]
    assert spec.quota is not None
    assert spec.quota.tokens_per_minute == 100_000
    assert spec.resources is not None
    assert spec.resources.memory_mib == 16_384


def test_a_contract_written_out_reads_back_the_same() -> None:
    contract = parse_contract(load_document(FULL))
    assert parse_contract(document_of(contract)) == contract


def test_a_pool_with_everything_is_read() -> None:
    pool = parse_pool(yaml.safe_load(POOL))
    assert pool.spec.chiplet.profile == "3g.71gb"
    assert pool.spec.checkpoint is not None
    assert pool.spec.checkpoint.budget_mbps == 400


@pytest.mark.parametrize(
    ("chiplet", "says"),
    [
        pytest.param({"shape": "MIG"}, "add profile", id="MIG without a profile"),
        pytest.param({"shape": "GPU", "profile": "3g.71gb"}, "remove profile", id="a profile on whole GPUs"),
        pytest.param({"shape": "MIG", "profile": "3g.71gb", "count": 2}, "shape: GPU", id="a group of MIG"),
        pytest.param({"shape": "MIG", "profile": "huge"}, "match", id="no such profile form"),
    ],
)
def test_a_pool_s_shape_must_make_sense(chiplet: dict[str, Any], says: str) -> None:
    pool = {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "ChipletPool",
        "spec": {"model": {"name": "m"}, "chiplet": chiplet},
    }
    with pytest.raises(ContractInvalid, match=says):
        parse_pool(pool)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_sample_is_a_contract(path: Path) -> None:
    assert [parse_contract(document) for document in load_documents(path.read_bytes())]


@pytest.mark.parametrize(
    ("spec", "field", "fix"),
    [
        pytest.param({"maxJitterMs": "300ms"}, "spec.maxJitterMs", "write 300 ", id="milliseconds with unit"),
        pytest.param({"maxJitterMs": "1.5s"}, "spec.maxJitterMs", "write 1500 ", id="seconds with unit"),
        pytest.param({"maxJitterMs": "300"}, "spec.maxJitterMs", "without quotes", id="a number in quotes"),
        pytest.param({"maxJitterMs": 0}, "spec.maxJitterMs", "at least 1", id="zero"),
        pytest.param({"maxJitterMs": -5}, "spec.maxJitterMs", "at least 1", id="negative"),
        pytest.param({"maxJitterMs": 3_600_001}, "spec.maxJitterMs", "at most 3600000", id="over an hour"),
        pytest.param({"maxJitterMs": 2.5}, "spec.maxJitterMs", "write 2", id="a fraction"),
        pytest.param({"maxJitterMs": True}, "spec.maxJitterMs", "whole number", id="true is no number"),
        pytest.param({"maxJitterMs": float("nan")}, "spec.maxJitterMs", "plain number", id="nan"),
        pytest.param({"maxJitterMs": 10**400}, "spec.maxJitterMs", "smaller", id="10^400"),
        pytest.param({"tier": "gold"}, "spec.tier", "write Gold", id="a tier in lower case"),
        pytest.param({"tier": "Platinum"}, "spec.tier", "'Gold', 'Silver' or 'Bronze'", id="no such tier"),
        pytest.param({"availability": 99.95}, "spec.availability", '"99.95" in quotes', id="number for text"),
        pytest.param(
            {"availability": "0.9995"}, "spec.availability", "percent", id="a fraction, not percent"
        ),
        pytest.param({"availability": "100"}, "spec.availability", "99.9999", id="nothing is always there"),
        pytest.param({"window": "1 hour"}, "spec.window", "10m or 1h", id="a window in words"),
        pytest.param({"window": "1s"}, "spec.window", "between 10s and 30d", id="a window too short"),
        pytest.param({"window": "400d"}, "spec.window", "between 10s and 30d", id="a window too long"),
        pytest.param({"serviceID": "My Chat!"}, "spec.serviceID", "write my-chat", id="a name with blanks"),
        pytest.param({"quota": []}, "spec.quota", "fields under it", id="a list for a mapping"),
        pytest.param({"objectives": {}}, "spec.objectives", "one item per line", id="a mapping for a list"),
        pytest.param({"onInfeasable": "Reject"}, "spec.onInfeasable", "onInfeasible?", id="a typing mistake"),
        pytest.param({"max_jitter_ms": 5}, "spec.max_jitter_ms", "maxJitterMs?", id="snake case"),
        pytest.param(
            {"concurrency": 5}, "spec.concurrency", "spec.quota.concurrency", id="one level too high"
        ),
        pytest.param({"color": "red"}, "spec.color", "remove it", id="nothing like anything"),
        pytest.param({"parentRef": {"name": "checkout"}}, "spec.parentRef.name", "another", id="own parent"),
        pytest.param({"fallbackRef": {"name": "checkout"}}, "spec.fallbackRef.name", "another", id="itself"),
        pytest.param(
            {"objectives": [{"metric": "TTFT", "percentile": 99.9, "targetMs": 1}]},
            "spec.objectives[0].percentile",
            "1 to 99",
            id="P99.9",
        ),
        pytest.param(
            {"objectives": [{"metric": "TTFT", "percentile": 100, "targetMs": 1}]},
            "spec.objectives[0].percentile",
            "at most 99",
            id="P100",
        ),
        pytest.param(
            {"objectives": [{"metric": "TTFT", "percentile": 99}]},
            "spec.objectives[0].targetMs",
            "add targetMs",
            id="no target",
        ),
        pytest.param(
            {"objectives": [{"metric": "E2E", "percentile": 99, "targetMs": t} for t in (1, 2)]},
            "spec.objectives[1]",
            "keep one",
            id="one pair twice",
        ),
        pytest.param(
            {
                "objectives": [
                    {"metric": "E2E", "percentile": 95, "targetMs": 500},
                    {"metric": "E2E", "percentile": 99, "targetMs": 300},
                ]
            },
            "spec.objectives[0].targetMs",
            "at most 300",
            id="P95 looser than P99",
        ),
        pytest.param(
            {"objectives": [{"metric": "E2E", "percentile": p, "targetMs": 5} for p in range(1, 18)]},
            "spec.objectives",
            "at most 16",
            id="too many objectives",
        ),
    ],
)
def test_a_mistake_names_field_value_and_fix(spec: dict[str, Any], field: str, fix: str) -> None:
    found = problems_of(document(**spec))
    assert field in found
    assert fix in found[field].fix
    assert len(found[field].value) <= 80


def test_everything_wrong_is_told_at_once() -> None:
    wrong = document(tier="gold", priority="high", window="soon") | {"kind": "SLOContrat", "extra": 1}
    assert set(problems_of(wrong)) == {"kind", "extra", "spec.tier", "spec.priority", "spec.window"}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param({}, "apiVersion", id="nothing at all"),
        pytest.param({"apiVersion": "superinfer.dev/v1alpha1", "kind": "SLOContract"}, "spec", id="no spec"),
        pytest.param(document() | {"metadata": {}}, "metadata.name", id="no name"),
        pytest.param(document() | {"metadata": {"name": "a.b"}}, "spec.serviceID", id="a name with a dot"),
        pytest.param({"tier": "Gold"}, "tier", id="a bare spec: told where the field belongs"),
        pytest.param([], "document", id="a list"),
    ],
)
def test_an_incomplete_document_says_what_is_missing(document: Any, field: str) -> None:
    assert field in problems_of(document)


def test_what_kubectl_prints_is_a_fine_document() -> None:
    printed = document(tier="Gold") | {"status": {"conditions": [{"anything": 1}]}}
    printed["metadata"] |= {
        "uid": "u",
        "resourceVersion": "12",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"a/b": "c"},
    }
    contract = parse_contract(printed)
    assert contract.metadata.generation == 3
    assert contract.status is None


def test_resources_are_read_leniently_for_fields_of_newer_versions_only() -> None:
    resource = document(tier="Gold", invented="later")
    assert read_contract(resource).spec.tier is Tier.GOLD
    with pytest.raises(ContractInvalid):
        read_contract(document(tier="Gold", maxJitterMs=-1))


def test_what_the_api_server_adds_may_be_larger_than_any_contract() -> None:
    resource = document(tier="Gold") | {"status": {"conditions": [{"message": "x" * 100_000}] * 50}}
    resource["metadata"]["managedFields"] = [{"fieldsV1": {f"f:{i}": {} for i in range(10_000)}}]
    resource["metadata"]["labels"] = {f"{'p' * 253}/{'n' * 60}{i}": "" for i in range(100)}
    resource["metadata"]["annotations"] = {f"tool-{i}": "x" * 3_000 for i in range(100)}
    assert read_contract(resource).spec.tier is Tier.GOLD


def test_an_error_does_not_grow_as_large_as_its_input() -> None:
    with pytest.raises(ContractInvalid) as refused:
        parse_contract(document(**{f"unknown{i}": "x" * 10_000 for i in range(2000)}))
    assert len(refused.value.problems) == 2000
    assert len(str(refused.value)) < 20_000


def test_an_unreadable_resource_is_kept_with_its_problems() -> None:
    resource = document(maxJitterMs=-1)
    resource["metadata"] |= {"uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 4}
    stored = stored_from_resource(resource)
    assert (stored.object_key, stored.spec, stored.generation) == ("shop/checkout", None, 4)
    assert stored.invalid[0].field == "spec.maxJitterMs"


NAMES = [
    *("apiVersion", "kind", "metadata", "spec", "name", "tier", "objectives", "metric", "percentile"),
    *("targetMs", "quota", "service_id", "slo", "latency", "p95_ms", "availability", "fallback", "allowed"),
    *(
        "window",
        "parentRef",
        "access",
        "resources",
        "status",
        "resource_constraints",
        "labels",
        "annotations",
    ),
]
names = st.sampled_from(NAMES)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.binary(max_size=5)
    | st.sampled_from(["superinfer.dev/v1alpha1", "SLOContract", "Gold", "TTFT", "1h", "99.9", "a"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(names | st.text(max_size=5), inner, max_size=6)
        | st.dictionaries(st.integers(), inner, max_size=2)
    ),
    max_leaves=25,
)


def attempt(value: Any) -> SLOContract | ContractInvalid:
    try:
        return parse_contract(value)
    except ContractInvalid as refused:
        return refused


@given(anything)
def test_whatever_a_document_holds_only_contract_invalid_is_raised(value: Any) -> None:
    outcome = attempt(value)
    if isinstance(outcome, ContractInvalid):
        assert outcome.problems
        assert all(len(problem.value) <= 80 for problem in outcome.problems)


@settings(max_examples=50)
@given(st.dictionaries(names | st.text(max_size=5), anything, max_size=8))
def test_whatever_a_spec_holds_only_contract_invalid_is_raised(spec: dict[str, Any]) -> None:
    for value in (document(**spec), {"service_id": "a", **spec}):
        outcome = attempt(value)
        assert isinstance(outcome, SLOContract) or outcome.problems
