"""The API models hold only what a CRD can say, bounded everywhere, and documented for `kubectl explain`."""

from collections.abc import Iterator
from typing import Any

import pytest

from superinfer_core.api.v1alpha1.chipletpool import MAX_POOL_NAME, ChipletPoolSpec, ChipletPoolStatus
from superinfer_core.api.v1alpha1.labels import executor_name, executors_service_name, mig_resource
from superinfer_core.api.v1alpha1.nodetopology import NodeTopologyStatus
from superinfer_core.api.v1alpha1.slocontract import SLOContractSpec, SLOContractStatus

MODELS = [SLOContractSpec, SLOContractStatus, ChipletPoolSpec, ChipletPoolStatus, NodeTopologyStatus]


def nodes(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value schema with its path, references resolved and `| None` unwrapped."""
    definitions = schema.get("$defs", {})

    def walk(node: dict[str, Any], path: str, seen: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            assert name not in seen, f"{path} is recursive"
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            yield from walk(definitions[name] | siblings, path, (*seen, name))
            return
        if "anyOf" in node:
            inner = [option for option in node["anyOf"] if option != {"type": "null"}]
            assert len(inner) == 1, f"{path} is a union"
            rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
            yield from walk(inner[0] | rest, path, seen)
            return
        yield path, node
        for name, child in node.get("properties", {}).items():
            yield from walk(child, f"{path}.{name}", seen)
        if isinstance(node.get("items"), dict):
            yield from walk(node["items"], f"{path}[]", seen)
        if isinstance(node.get("additionalProperties"), dict):
            yield from walk(node["additionalProperties"], f"{path}{{}}", seen)

    return walk(schema, "", ())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_crd_can_say_all_of_it(model: Any) -> None:
    for path, node in nodes(model.model_json_schema(by_alias=True)):
        assert node.get("type") in ("object", "array", "string", "integer", "boolean"), path
        assert not {"const", "prefixItems", "oneOf", "allOf", "discriminator", "exclusiveMinimum"} & set(
            node
        ), path
        assert "_" not in path, path


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_everything_is_bounded(model: Any) -> None:
    for path, node in nodes(model.model_json_schema(by_alias=True)):
        match node["type"]:
            case "string":
                assert "enum" in node or "maxLength" in node, path
            case "integer":
                assert {"minimum", "maximum"} <= set(node), path
            case "array":
                assert "maxItems" in node, path
                assert "x-kubernetes-list-type" in node, path
            case _ if "additionalProperties" in node:
                assert "maxProperties" in node, path


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_is_documented(model: Any) -> None:
    for path, node in nodes(model.model_json_schema(by_alias=True)):
        if path and not path.endswith(("[]", "{}")):
            assert node.get("description", "").endswith((".", '".')), path


def test_a_contract_has_no_defaults_that_would_hide_a_parent_s_value() -> None:
    for path, node in nodes(SLOContractSpec.model_json_schema(by_alias=True)):
        assert "default" not in node, path


def test_rules_between_fields_are_the_api_server_s_too() -> None:
    rules = {
        path: [rule["rule"] for rule in node["x-kubernetes-validations"]]
        for path, node in nodes(ChipletPoolSpec.model_json_schema(by_alias=True))
        if "x-kubernetes-validations" in node
    }
    assert "self.minReplicas <= self.maxReplicas" in rules[".autoscaling"]
    assert len(rules[".chiplet"]) == 7


def test_names_of_executors_fit_a_host_name() -> None:
    longest = executor_name("p" * MAX_POOL_NAME, slot=9999, incarnation=9_999_999_999)
    assert len(longest) <= 63
    assert len(executors_service_name("p" * MAX_POOL_NAME)) <= 63
    assert mig_resource("1g.18gb+me") == "nvidia.com/mig-1g.18gb.me"
