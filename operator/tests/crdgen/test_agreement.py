"""Core and the API server agree on what a contract or pool is, for documents nobody thought of.

Documents are drawn from the generated schemas: every field may be there or not, with values at, inside and
just outside its bounds. Whatever one side refuses the other must refuse, too: a pool that `kubectl apply`
takes must never be InvalidSpec for the operator, and `superinfer contract check` must not promise too much.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crdgen.samples import CONTRACT, POOL, Document
from superinfer_core.contract.parse import parse_contract, parse_pool
from superinfer_core.contract.problems import ContractInvalid
from superinfer_kube.testing.apiserver import ApiServer
from superinfer_operator.crdgen.documents import object_schema
from superinfer_operator.crdgen.kinds import CHIPLETPOOL, SLOCONTRACT, Kind

pytestmark = pytest.mark.apiserver

WORDS = {
    "name": ["a", "a-b", "a.b", "9", "A", "-a", "a-", "a_b", "ü", "a" * 253, "a" * 254, ""],
    "namespace": ["shop", "a.b", "n" * 63, "n" * 64, ""],
    "serviceID": ["x", "x-y", "x.y", "X", "s" * 63, "s" * 64, "x\n"],
    "availability": ["99.95", "1", "99.9999", "100", "0", "99.99999", "99.", "099"],
    "window": ["10s", "9s", "30d", "31d", "1h", "1w", "999999d", "0m", "10S"],
    "profile": ["3g.71gb", "1g.10gb+me", "8g.10gb", "3g71gb", "1g.1000gb", "1g.5GB"],
    "operator": ["Exists", "Equal", "exists", ""],
    "effect": ["NoSchedule", "PreferNoSchedule", "NoExecute", "Never", ""],
}
TEXTS = ["", "x", "two words", "ü", "a\nb", "x" * 63, "x" * 64, "x" * 253, "x" * 254]


def drawn(node: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
    """Values for one field."""
    match node["type"]:
        case "integer":
            low, high = node["minimum"], node["maximum"]
            return st.sampled_from([low, low + 1, high, min(high, low + 7), low - 1, high + 1])
        case "string" if "enum" in node:
            return st.sampled_from([*node["enum"], node["enum"][0].lower()])
        case "string":
            return st.sampled_from(WORDS.get(name, TEXTS))
        case "array":
            return st.lists(drawn(node["items"], name), max_size=3)
        case "object" if node.get("x-kubernetes-preserve-unknown-fields"):
            return st.just({"terminationGracePeriodSeconds": 5})
        case "object" if "properties" in node:
            return objects(node)
        case _:
            inner = drawn(node["additionalProperties"], "value")
            return st.dictionaries(st.sampled_from(["a", "superinfer.dev/pool", "x/y"]), inner, max_size=2)


def objects(node: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    required = set(node.get("required", []))
    fields = {name: drawn(child, name) for name, child in node["properties"].items()}
    return st.fixed_dictionaries(
        {name: fields[name] for name in sorted(required)},
        optional={name: fields[name] for name in sorted(set(fields) - required)},
    )


def mutated(kind: Kind, sample: Document) -> st.SearchStrategy[Document]:
    """The sample with one to three of the fields of its spec drawn anew, or taken away."""
    spec = object_schema(kind)["properties"]["spec"]

    @st.composite
    def document(draw: st.DrawFn) -> Document:
        made = dict(sample["spec"])
        for name in draw(st.lists(st.sampled_from(sorted(spec["properties"])), min_size=1, max_size=3)):
            if draw(st.booleans()) and draw(st.booleans()):
                made.pop(name, None)
            else:
                made[name] = draw(drawn(spec["properties"][name], name))
        return {**sample, "spec": made}

    return document()


CONTRACTS = mutated(SLOCONTRACT, CONTRACT)
POOLS = mutated(CHIPLETPOOL, POOL)
TRIES = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def verdicts(server: ApiServer, kind: Kind, document: Document) -> tuple[tuple[bool, bool], str]:
    """(the server takes it, core takes it) and what they say."""
    path = f"/apis/superinfer.dev/v1alpha1/namespaces/default/{kind.plural}?fieldValidation=Strict&dryRun=All"
    code, answer = server.request("POST", path, document)
    assert code in (201, 400, 422), answer
    try:
        parse_contract(document) if kind is SLOCONTRACT else parse_pool(document)
    except ContractInvalid as invalid:
        return (code == 201, False), f"server: {answer.get('message')}\ncore: {invalid}"
    return (code == 201, True), f"server: {answer.get('message')}\ncore: fine"


@TRIES
@given(document=CONTRACTS)
def test_about_contracts(superinfer_api: ApiServer, document: Document) -> None:
    (server, core), said = verdicts(superinfer_api, SLOCONTRACT, document)
    assert server == core, said


@TRIES
@given(document=POOLS)
def test_about_pools(superinfer_api: ApiServer, document: Document) -> None:
    (server, core), said = verdicts(superinfer_api, CHIPLETPOOL, document)
    assert server == core, said
