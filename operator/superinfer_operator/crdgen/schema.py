"""From what pydantic says about a model to what a CustomResourceDefinition may say (a structural schema).

Pydantic writes JSON Schema 2020-12; the API server takes a subset of OpenAPI 3.0 without references, null
types, unions or constants. Whatever has no equal there is refused here, at generation, with the path of the
field, rather than by the API server at installation. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]

_KEPT: Final = frozenset(
    {
        "default",
        "description",
        "enum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    }
)
# Nothing is lost: unknown fields are pruned, titles repeat the name, and keys have no schema of their own.
_DROPPED: Final = frozenset({"title", "propertyNames"})
_TRANSLATED: Final = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "items", "properties"}
)
_TYPES: Final = frozenset({"array", "boolean", "integer", "object", "string"})
_INT32_MAX: Final = 2**31 - 1


class CannotBeStructural(ValueError):
    """A model says something a CustomResourceDefinition cannot; names the field."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'the model'}: {problem}")
        self.path = path


def structural_schema(model: type[BaseModel]) -> Schema:
    """The schema of a model as the API server takes it: references inlined, null types gone.

    Raises:
        CannotBeStructural: the model uses something that has no equal there.
    """
    root = model.model_json_schema(by_alias=True)
    return _Inliner(root.get("$defs", {})).node(root, "", ())


class _Inliner:
    """Walks one JSON schema; `seen` are the definitions on the way down, so that recursion is noticed."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def node(self, node: Schema, path: str, seen: tuple[str, ...]) -> Schema:
        if "$ref" in node:
            name = str(node["$ref"]).rpartition("/")[2]
            if name in seen:
                raise CannotBeStructural(path, f"{name} contains itself")
            return self.node(self._definitions[name] | _without(node, "$ref"), path, (*seen, name))
        if "anyOf" in node:
            return self.node(_not_null(node, path), path, seen)
        if "const" in node:
            value = node["const"]
            return self.node(_without(node, "const") | {"enum": [value]}, path, seen)
        self._check(node, path)
        out = {key: value for key, value in node.items() if key in _KEPT}
        if node["type"] == "object":
            self._object(node, out, path, seen)
        elif node["type"] == "array":
            out["items"] = self.node(node["items"], f"{path}[]", seen)
        elif node["type"] == "integer":
            out["format"] = "int32" if node.get("maximum", 2**62) <= _INT32_MAX else "int64"
        return dict(sorted(out.items()))

    def _object(self, node: Schema, out: Schema, path: str, seen: tuple[str, ...]) -> None:
        inner = node.get("additionalProperties")
        if "properties" in node:
            # `additionalProperties: false` beside them would be an error, and is what pruning does anyway.
            out["properties"] = {
                name: self.node(child, f"{path}.{name}" if path else name, seen)
                for name, child in sorted(node["properties"].items())
            }
            if "required" in out:
                out["required"] = sorted(out["required"])
        elif isinstance(inner, dict):
            out["additionalProperties"] = self.node(inner, f"{path}{{}}", seen)
        elif not node.get("x-kubernetes-preserve-unknown-fields"):
            raise CannotBeStructural(path, "an object of anything must be marked as opaque")

    def _check(self, node: Schema, path: str) -> None:
        if unknown := sorted(set(node) - _KEPT - _DROPPED - _TRANSLATED):
            raise CannotBeStructural(
                path, f"{', '.join(unknown)} cannot be said in a CustomResourceDefinition"
            )
        if node.get("type") not in _TYPES:
            raise CannotBeStructural(
                path, f"type {node.get('type')} is not one of {', '.join(sorted(_TYPES))}"
            )
        if "default" in node and node["default"] is None:
            raise CannotBeStructural(path, "a default of null would be written into every object")


def _not_null(node: Schema, path: str) -> Schema:
    """The one real alternative of `X | None`; what stands beside it stays, except a default of null."""
    options = [option for option in node["anyOf"] if option != {"type": "null"}]
    if len(options) != 1:
        raise CannotBeStructural(path, "a union of several types")
    beside = _without(node, "anyOf")
    if beside.get("default", 0) is None:
        beside = _without(beside, "default")
    alternative: Schema = options[0]
    return alternative | beside


def _without(node: Schema, key: str) -> Schema:
    return {name: value for name, value in node.items() if name != key}
