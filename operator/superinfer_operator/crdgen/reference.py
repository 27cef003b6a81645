"""docs/api.md: every field of every kind, from the same schemas as the CustomResourceDefinitions. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from superinfer_core.api.v1alpha1.meta import API_VERSION
from superinfer_operator.crdgen.documents import object_schema
from superinfer_operator.crdgen.kinds import KINDS, Kind

_HEAD: Final = f"""# API reference: {API_VERSION}

Generated from the models by `make gen`; `kubectl explain` says the same. Bounds and rules are checked by the
API server. A field with a default is written into the object; what else is left out stays out.
"""
_CONDITION_FIELDS: Final = "conditions[]."


def reference() -> str:
    """The whole page."""
    return _HEAD + "".join(_kind(kind) for kind in KINDS)


def _kind(kind: Kind) -> str:
    schema = object_schema(kind)
    scope = "in a namespace" if kind.scope.value == "Namespaced" else "one for the whole cluster"
    parts = [f"\n## {kind.name}\n\n{schema['description']} `kubectl get {kind.short_name}`; {scope}.\n"]
    for part in ("spec", "status"):
        if part not in schema["properties"]:
            continue
        parts.append(f"\n### {kind.name} {part}\n\n| field | type | |\n| --- | --- | --- |\n")
        parts += [_row(path, node, required=required) for path, node, required in _fields(schema, part)]
    if rules := list(_rules(schema, "")):
        parts.append(f"\n### {kind.name} rules\n\n")
        parts += [f"- {f'`{path}`: ' if path else ''}{message}\n" for path, message in rules]
    return "".join(parts)


def _fields(schema: dict[str, Any], part: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every field below a part, with whether it must be stated; repeated inner structures are left out."""

    def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
        if node["type"] == "array":
            yield from walk(node["items"], f"{path}[]")
        for name, child in node.get("properties", {}).items():
            here = f"{path}.{name}" if path else name
            if here.startswith((_CONDITION_FIELDS, "effective.spec.")):
                continue
            yield here, child, name in node.get("required", [])
            yield from walk(child, here)

    return walk(schema["properties"][part], "")


def _row(path: str, node: dict[str, Any], *, required: bool) -> str:
    about = node.get("description", "").replace("|", "\\|")
    default = node.get("default")
    extra = f" Default: `{default}`." if default not in (None, {}) else ""
    must = " **Required.**" if required else ""
    return f"| `{path}` | {_type(node)} | {about}{extra}{must} |\n"


def _type(node: dict[str, Any]) -> str:
    if "enum" in node:
        return ", ".join(f"`{word}`" for word in node["enum"])
    match node["type"]:
        case "integer":
            return f"{node['minimum']:,} to {node['maximum']:,}"
        case "string" if node.get("format") == "date-time":
            return "time"
        case "string":
            return f"text, at most {node['maxLength']:,}"
        case "array":
            return f"list, at most {node['maxItems']:,}"
        case "object" if node.get("x-kubernetes-preserve-unknown-fields"):
            return "anything"
        case "object" if "properties" not in node:
            return f"map, at most {node['maxProperties']}"
        case other:
            return str(other)


def _rules(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if path.startswith("status"):
        return
    for rule in node.get("x-kubernetes-validations", []):
        yield path, rule["message"]
    if isinstance(node.get("items"), dict):
        yield from _rules(node["items"], f"{path}[]")
    for name, child in node.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}" if path else name)
