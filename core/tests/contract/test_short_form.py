"""The short YAML of the first users, there and back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.contract.document import load_document
from superinfer_core.contract.parse import document_of, parse_contract
from superinfer_core.contract.problems import ContractInvalid
from superinfer_core.contract.short_form import short_from_contract

SHORT = """
service_id: med-triage
slo: {latency: {p95_ms: 100, p99_ms: 200, max_jitter_ms: 20}}
availability: 99.95
fallback: {allowed: true, alternative_service: med-basic}
resource_constraints: {min_gpu_count: 2, preferred_gpu_type: NVIDIA-H200, memory_per_gpu_mb: 4000}
"""


def test_the_short_form_means_end_to_end_latency() -> None:
    assert document_of(parse_contract(load_document(SHORT))) == {
        "apiVersion": "superinfer.dev/v1alpha1",
        "kind": "SLOContract",
        "metadata": {"name": "med-triage"},
        "spec": {
            "serviceID": "med-triage",
            "objectives": [
                {"metric": "E2E", "percentile": 95, "targetMs": 100},
                {"metric": "E2E", "percentile": 99, "targetMs": 200},
            ],
            "maxJitterMs": 20,
            "availability": "99.95",
            "onInfeasible": "Fallback",
            "fallbackRef": {"name": "med-basic"},
            "resources": {"minChiplets": 2, "product": "NVIDIA-H200", "memoryMiB": 4000},
        },
    }


@pytest.mark.parametrize(
    ("fallback", "policy"),
    [
        pytest.param({"allowed": False}, "Reject", id="not allowed: refuse"),
        pytest.param({"allowed": True}, "Degrade", id="allowed without a service: best effort"),
        pytest.param({"allowed": True, "alternative_service": "b"}, "Fallback", id="allowed with a service"),
        pytest.param({"allowed": False, "alternative_service": "b"}, "Reject", id="named but not allowed"),
    ],
)
def test_fallback_decides_what_happens_when_infeasible(fallback: dict[str, Any], policy: str) -> None:
    contract = parse_contract({"service_id": "a", "fallback": fallback})
    assert contract.spec.on_infeasible == policy


@pytest.mark.parametrize(
    ("short", "field", "fix"),
    [
        pytest.param({"slo": {}}, "service_id", "add", id="no service_id"),
        pytest.param({"service_id": "A b"}, "service_id", "", id="not a service_id"),
        pytest.param({"service_id": "a", "slo": {}}, "slo.latency", "add latency", id="an empty slo"),
        pytest.param({"service_id": "a", "slo": {"latency": {}}}, "slo.latency", "remove", id="no latency"),
        pytest.param(
            {"service_id": "a", "slo": {"latency": {"p95_ms": "100ms"}}},
            "slo.latency.p95_ms",
            "",
            id="a unit",
        ),
        pytest.param(
            {"service_id": "a", "slo": {"latency": {"p95_ms": 300, "p99_ms": 200}}},
            "slo.latency.p95_ms",
            "at most 200",
            id="p95 looser than p99",
        ),
        pytest.param(
            {"service_id": "a", "slo": {"latency": {"p50_ms": 3}}},
            "slo.latency.p50_ms",
            "p95_ms",
            id="no such percentile",
        ),
        pytest.param(
            {"service_id": "a", "slo": {"availability": 99}},
            "slo.availability",
            "it belongs at availability",
            id="availability inside slo",
        ),
        pytest.param({"service_id": "a", "availability": 0.9995}, "availability", "", id="a fraction"),
        pytest.param({"service_id": "a", "availability": 100}, "availability", "", id="always"),
        pytest.param({"service_id": "a", "availability": "99.9"}, "availability", "", id="percent as text"),
        pytest.param(
            {"service_id": "a", "availability": 99.123456}, "availability", "99.1235", id="too many decimals"
        ),
        pytest.param(
            {"service_id": "a", "fallback": {}}, "fallback.allowed", "add", id="an undecided fallback"
        ),
        pytest.param({"service_id": "a", "fallback": {"allowed": "yes"}}, "fallback.allowed", "", id="yes"),
        pytest.param(
            {"service_id": "a", "resource_constraints": {}},
            "resource_constraints",
            "remove",
            id="nothing asked",
        ),
        pytest.param({"service_id": "a", "tier": "Gold"}, "tier", "", id="a field of the long form"),
    ],
)
def test_mistakes_are_told_in_the_names_of_the_short_form(
    short: dict[str, Any], field: str, fix: str
) -> None:
    with pytest.raises(ContractInvalid) as refused:
        parse_contract(short)
    found = {problem.field: problem for problem in refused.value.problems}
    assert field in found
    assert fix in found[field].fix


def test_what_the_short_form_has_no_place_for_is_named() -> None:
    contract = parse_contract(
        {
            "apiVersion": "superinfer.dev/v1alpha1",
            "kind": "SLOContract",
            "metadata": {"name": "other-name", "namespace": "shop"},
            "spec": {
                "serviceID": "chat",
                "tier": "Gold",
                "objectives": [
                    {"metric": "E2E", "percentile": 95, "targetMs": 10},
                    {"metric": "TTFT", "percentile": 99, "targetMs": 10},
                ],
                "window": "1h",
                "onInfeasible": "Fallback",
                "quota": {"concurrency": 1},
                "resources": {"isolation": "Device"},
                "access": {"mode": "AnyKey"},
            },
        }
    )
    with pytest.raises(ContractInvalid) as refused:
        short_from_contract(contract)
    assert {problem.field for problem in refused.value.problems} == {
        "metadata.namespace",
        "metadata.name",
        "spec.tier",
        "spec.objectives[1]",
        "spec.window",
        "spec.onInfeasible",
        "spec.quota",
        "spec.resources.isolation",
        "spec.access",
    }


milliseconds = st.integers(1, 3_600_000)
service_ids = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


@st.composite
def short_forms(draw: st.DrawFn) -> dict[str, Any]:
    service_id = draw(service_ids)
    p95, p99 = sorted((draw(milliseconds), draw(milliseconds)))
    latency = {"p95_ms": p95, "p99_ms": p99, "max_jitter_ms": draw(milliseconds)}
    resources = {
        "min_gpu_count": draw(st.integers(1, 100)),
        "preferred_gpu_type": draw(st.text("ABCdef-123", min_size=1, max_size=20)),
        "memory_per_gpu_mb": draw(st.integers(1, 10**6)),
    }
    fallback: dict[str, Any] = {"allowed": draw(st.booleans())}
    other = draw(service_ids)
    if other != service_id and draw(st.booleans()):
        fallback["alternative_service"] = other

    def some(fields: dict[str, Any]) -> dict[str, Any]:
        chosen = draw(st.sets(st.sampled_from(sorted(fields)), min_size=1))
        return {name: value for name, value in fields.items() if name in chosen}

    blocks = {
        "slo": {"latency": some(latency)},
        "availability": draw(st.integers(10_000, 999_999)) / 10_000,
        "fallback": fallback,
        "resource_constraints": some(resources),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(blocks))))
    return {"service_id": service_id} | {name: blocks[name] for name in blocks if name in chosen}


@settings(max_examples=50)
@given(short_forms())
def test_short_to_contract_to_short_is_the_identity(short: dict[str, Any]) -> None:
    contract = parse_contract(short)
    assert short_from_contract(contract) == short
    assert parse_contract(document_of(contract)) == contract
