"""What a JSON schema alone cannot say, in the words of Kubernetes: how lists merge, and rules across fields.

Used as `json_schema_extra` of fields and models; the CRD generator passes these marks through unchanged.
"""

from typing import Any, Final

from pydantic import ConfigDict, JsonValue
from pydantic_core import PydanticCustomError

SET: Final[dict[str, Any]] = {"x-kubernetes-list-type": "set"}
ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}
OPAQUE: Final[dict[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True}
TIMESTAMP: Final[dict[str, Any]] = {"format": "date-time"}
DEFAULT_EMPTY: Final[dict[str, Any]] = {"default": {}}
"""The API server fills in an object that is left out, with the defaults of its fields."""

Rule = tuple[str, str]
"""A CEL expression and what is wrong when it is false."""

IMMUTABLE: Final = "cannot be changed; delete the object and create it anew"


def map_by(*keys: str) -> dict[str, Any]:
    """A list whose items are told apart by the fields named."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def validations(*rules: Rule) -> dict[str, JsonValue]:
    """Rules as the API server checks them."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}


def rules(*stated: Rule) -> ConfigDict:
    """Rules of a whole model; a validator beside them says the same to everybody else."""
    return ConfigDict(json_schema_extra=validations(*stated))


def unchanged(path: str, name: str, absent: str = "") -> Rule:
    """A field that keeps its value once the object exists; `absent` is what leaving it out means.

    The rule stands on the parent: one on an optional field itself does not run when the field comes or goes.
    """
    if absent:
        new, old = (f"(has({side}.{path}) ? {side}.{path} : {absent})" for side in ("self", "oldSelf"))
        return f"{new} == {old}", f"{name} {IMMUTABLE}"
    return (
        f"has(self.{path}) == has(oldSelf.{path}) && (!has(self.{path}) || self.{path} == oldSelf.{path})",
        f"{name} {IMMUTABLE}",
    )


def broken_rule(message: str, fix: str) -> PydanticCustomError:
    """A rule across fields that does not hold, with what to write instead."""
    return PydanticCustomError("rule", "{message}", {"message": message, "fix": fix})


def each_once(items: list[Any]) -> list[Any]:
    """Refuses a list that the API server keeps as a set and that has something twice."""
    _refuse_twice([str(item) for item in items])
    return items


def each_name_once(items: list[Any]) -> list[Any]:
    """Refuses a list that the API server keeps by name and that has a name twice."""
    _refuse_twice([str(item.name) for item in items])
    return items


def _refuse_twice(words: list[str]) -> None:
    twice = next((word for number, word in enumerate(words) if word in words[:number]), None)
    if twice is not None:
        raise broken_rule(f"has {twice[:80]} twice", "keep one of them")
