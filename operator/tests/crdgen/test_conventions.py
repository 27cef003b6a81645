"""Our CustomResourceDefinitions keep the conventions that kube-api-linter checks for kinds written in Go."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from superinfer_operator.crdgen.documents import definition, file_name, stale, text, write
from superinfer_operator.crdgen.kinds import KINDS, Kind

REPOSITORY = Path(__file__).parents[3]


def version(kind: Kind) -> dict[str, Any]:
    (only,) = definition(kind)["spec"]["versions"]
    return dict(only)


def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(node.get(key), dict):
            yield from walk(node[key], path + suffix)


def nodes(kind: Kind) -> list[tuple[str, dict[str, Any]]]:
    schema = version(kind)["schema"]["openAPIV3Schema"]
    return [(path, node) for path, node in walk(schema, "") if path != ".metadata"]


each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def test_the_committed_files_are_what_the_models_say() -> None:
    assert stale(REPOSITORY / "crds") == []


def test_a_changed_or_foreign_file_is_noticed(tmp_path: Path) -> None:
    write(tmp_path)
    assert stale(tmp_path) == []
    (tmp_path / file_name(KINDS[0])).write_text("edited")
    (tmp_path / "other.yaml").write_text("foreign")
    assert stale(tmp_path) == sorted([file_name(KINDS[0]), "other.yaml"])


@each_kind
def test_files_have_no_anchors_and_no_tabs(kind: Kind) -> None:
    assert not re.search(r"[&*]id\d|\t", text(kind))


@each_kind
def test_it_can_be_found_and_listed(kind: Kind) -> None:
    spec = definition(kind)["spec"]
    assert spec["names"]["categories"] == ["superinfer"]
    assert spec["names"]["shortNames"] == [kind.short_name]
    assert "status" in version(kind)["subresources"]
    names = [column["name"] for column in version(kind)["additionalPrinterColumns"]]
    assert {"Ready", "Reason", "Age"} <= set(names)
    assert all(column["description"] for column in version(kind)["additionalPrinterColumns"])


@each_kind
def test_everything_is_explained(kind: Kind) -> None:
    for path, node in nodes(kind):
        if not path.endswith("{}") and not path.endswith("[]"):
            assert node.get("description", "").rstrip('"').endswith("."), path


@each_kind
def test_everything_is_bounded(kind: Kind) -> None:
    for path, node in nodes(kind):
        if node["type"] == "string":
            assert "enum" in node or "maxLength" in node, path
        elif node["type"] == "integer":
            assert {"minimum", "maximum", "format"} <= set(node), path
        elif node["type"] == "array":
            assert {"maxItems", "x-kubernetes-list-type"} <= set(node), path
        elif node["type"] == "object" and "properties" not in node:
            assert "maxProperties" in node, path


@each_kind
def test_no_floats_no_phase_no_null(kind: Kind) -> None:
    for path, node in nodes(kind):
        assert node["type"] != "number", path
        assert "nullable" not in node, path
        assert not path.endswith(".phase"), path


@each_kind
def test_a_spec_has_no_booleans(kind: Kind) -> None:
    # A choice of two grows a third; an enum can take it.
    assert [
        path for path, node in nodes(kind) if path.startswith(".spec") and node["type"] == "boolean"
    ] == []


@each_kind
def test_lists_of_objects_merge_by_a_key_they_require(kind: Kind) -> None:
    for path, node in nodes(kind):
        if node["type"] != "array" or node["items"]["type"] != "object":
            continue
        if node["x-kubernetes-list-type"] == "atomic":
            continue
        assert node["x-kubernetes-list-type"] == "map", path
        assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"].get("required", [])), path


@each_kind
def test_names_are_camel_case_and_say_their_unit(kind: Kind) -> None:
    for path, node in nodes(kind):
        name = path.rpartition(".")[2].rstrip("[]{}")
        if not name:
            continue
        assert re.fullmatch(r"[a-z][A-Za-z0-9]*", name), path
        # A number has a unit in its name; an object may have several.
        unitless = name.endswith(("timeout", "interval", "duration", "memory", "latency"))
        assert node["type"] == "object" or not unitless, path
        if node["type"] == "object" and name.endswith("Ref"):
            assert "name" in node["properties"], path


@each_kind
def test_conditions_are_as_everywhere(kind: Kind) -> None:
    status = version(kind)["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    conditions = status["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert {"type", "status", "reason", "message"} <= set(conditions["items"]["required"])
    assert {"observedGeneration", "lastTransitionTime"} <= set(conditions["items"]["properties"])


@each_kind
def test_every_rule_says_what_is_wrong(kind: Kind) -> None:
    for path, node in nodes(kind):
        for rule in node.get("x-kubernetes-validations", []):
            assert rule["message"], path
            assert not rule["message"].endswith("."), path


def test_only_pools_scale() -> None:
    scaled = {kind.name: version(kind)["subresources"].get("scale") for kind in KINDS}
    assert scaled == {
        "SLOContract": None,
        "NodeTopology": None,
        "ChipletPool": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
