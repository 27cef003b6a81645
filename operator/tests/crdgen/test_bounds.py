"""Every bound of every field, tried at the real API server: a value just beyond it is refused by name.

The cases are made from the generated schemas, so a new field cannot be forgotten; that the sample documents
state every field is a test of its own.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from crdgen.samples import CONTRACT, NODE, POOL, SMALL_POOL, Document, changed
from superinfer_kube.testing.apiserver import ApiServer
from superinfer_operator.crdgen.documents import object_schema
from superinfer_operator.crdgen.kinds import CHIPLETPOOL, NODETOPOLOGY, SLOCONTRACT, Kind

pytestmark = pytest.mark.apiserver

SAMPLES: dict[str, Document] = {"SLOContract": CONTRACT, "ChipletPool": POOL, "NodeTopology": NODE}
MIG_POOL = changed(SMALL_POOL, {"spec.chiplet": {"shape": "MIG", "profile": "3g.71gb"}})
# Fields the sample cannot state beside the others, with a document that states them.
ELSEWHERE = {"spec.chiplet.profile": MIG_POOL}


def leaves(node: dict[str, Any], path: str, value: Any) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Every stated value with its schema, down one item of each list."""
    yield path, node, value
    if node["type"] == "object":
        for name, child in node.get("properties", {}).items():
            if path or name in ("spec", "status"):
                inner = value.get(name) if isinstance(value, dict) else None
                yield from leaves(child, f"{path}.{name}".lstrip("."), inner)
    elif node["type"] == "array":
        # Items differ in what they state: a field counts as stated when any item has it.
        first = (
            dict(pair for item in value for pair in item.items()) if _objects(value) else (value or [None])[0]
        )
        yield from leaves(node["items"], f"{path}.0", first)


def _objects(value: Any) -> bool:
    return bool(value) and all(isinstance(item, dict) for item in value)


def beyond(node: dict[str, Any], value: Any) -> Iterator[tuple[str, Any]]:
    """Values just outside each bound of a schema."""
    match node["type"]:
        case "integer":
            yield "below", node["minimum"] - 1
            yield "above", node["maximum"] + 1
            yield "text", "1"
        case "string" if "enum" in node:
            yield "unknown word", "Nonsense"
        case "string":
            if "pattern" in node:
                yield "pattern", "!"
            elif node.get("format") == "date-time":
                yield "no time", "yesterday"
            yield "too long", "a" * (node["maxLength"] + 1)
            yield "number", 1
        case "boolean":
            yield "text", "true"
        case "array" if value:
            yield "too many", [value[0]] * (node["maxItems"] + 1)
        case "object":
            for name in node.get("required", []):
                yield f"without {name}", {key: kept for key, kept in (value or {}).items() if key != name}


def cases() -> Iterator[Any]:
    for kind, part in ((SLOCONTRACT, "spec"), (CHIPLETPOOL, "spec"), (NODETOPOLOGY, "status")):
        schema = object_schema(kind)
        for path, node, _ in leaves(schema, "", SAMPLES[kind.name]):
            if path.split(".")[0] != part:
                continue
            start = ELSEWHERE.get(path, SAMPLES[kind.name])
            for what, bad in beyond(node, value_at(start, path)):
                yield pytest.param(kind, path, start, bad, id=f"{kind.name} {path} {what}")


def value_at(document: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(document, list):
            document = document[int(part)] if int(part) < len(document) else None
        else:
            document = document.get(part) if isinstance(document, dict) else None
    return document


def collection(kind: Kind) -> str:
    base = "/apis/superinfer.dev/v1alpha1"
    return f"{base}/{kind.plural}" if kind is NODETOPOLOGY else f"{base}/namespaces/default/{kind.plural}"


def offer(server: ApiServer, kind: Kind, document: Document) -> tuple[int, dict[str, Any]]:
    """Whether the server would take it; without a spec, as the status of an object that exists."""
    if kind is not NODETOPOLOGY:
        return server.request("POST", f"{collection(kind)}?fieldValidation=Strict&dryRun=All", document)
    bare = {key: value for key, value in document.items() if key != "status"}
    path = f"{collection(kind)}/{document['metadata']['name']}"
    server.apply(path, bare)
    return server.request(
        "PATCH",
        f"{path}/status?dryRun=All",
        {"status": document["status"]},
        content_type="application/merge-patch+json",
    )


@pytest.mark.parametrize("kind", [SLOCONTRACT, CHIPLETPOOL, NODETOPOLOGY], ids=lambda kind: kind.name)
def test_a_document_that_states_every_field_is_accepted(superinfer_api: ApiServer, kind: Kind) -> None:
    code, answer = offer(superinfer_api, kind, SAMPLES[kind.name])
    assert code in (200, 201), answer


@pytest.mark.parametrize("kind", [SLOCONTRACT, CHIPLETPOOL, NODETOPOLOGY], ids=lambda kind: kind.name)
def test_the_samples_state_every_field(kind: Kind) -> None:
    part = "status" if kind is NODETOPOLOGY else "spec"
    unstated = [
        path
        for path, _, value in leaves(object_schema(kind), "", SAMPLES[kind.name])
        if path.startswith(part) and value is None and path not in ELSEWHERE
    ]
    assert unstated == []


@pytest.mark.parametrize(("kind", "path", "start", "bad"), list(cases()))
def test_a_value_beyond_a_bound_is_refused(
    superinfer_api: ApiServer, kind: Kind, path: str, start: Document, bad: Any
) -> None:
    code, answer = offer(superinfer_api, kind, changed(start, {path: bad}))
    assert code == 422, answer
    # The server writes list items as [0] and keys of maps in brackets.
    steps = path.split(".")
    name = steps[-1] if not steps[-1].isdigit() else steps[-2]
    assert name in answer["message"]
