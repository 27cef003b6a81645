"""What a JSON schema alone cannot say, in the words of Kubernetes: how lists merge, and rules across fields.

Used as `json_schema_extra` of fields and models; the CRD generator passes these marks through unchanged. A
`Rule` is stated once: the API server checks its expression, a validator beside it raises `broken()`, and both
say the same.
"""

from typing import Any, Final, NamedTuple

from pydantic import ConfigDict, JsonValue
from pydantic_core import PydanticCustomError

SET: Final[dict[str, Any]] = {"x-kubernetes-list-type": "set"}
ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}
OPAQUE: Final[dict[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True}
TIMESTAMP: Final[dict[str, Any]] = {"format": "date-time"}
DEFAULT_EMPTY: Final[dict[str, Any]] = {"default": {}}
"""The API server fills in an object that is left out, with the defaults of its fields."""


class Rule(NamedTuple):
    """A rule across fields.

    Attributes:
        expression: in CEL, true where it holds.
        problem: what is wrong where it does not.
        fix: what to write instead.
    """

    expression: str
    problem: str
    fix: str

    @property
    def message(self) -> str:
        """Problem and fix, as the API server tells them."""
        return f"{self.problem}; {self.fix}"

    def broken(self) -> PydanticCustomError:
        """The same for readers of documents, as the error of a validator."""
        return broken_rule(self.problem, self.fix)


def map_by(*keys: str) -> dict[str, Any]:
    """A list whose items are told apart by the fields named."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def validations(*rules: Rule) -> dict[str, JsonValue]:
    """Rules as the API server checks them."""
    return {
        "x-kubernetes-validations": [{"rule": rule.expression, "message": rule.message} for rule in rules]
    }


def rules(*stated: Rule) -> ConfigDict:
    """Rules of a whole model; a validator beside them says the same to everybody else."""
    return ConfigDict(json_schema_extra=validations(*stated))


def unchanged(path: str, name: str, absent: str = "") -> Rule:
    """A field that keeps its value once the object exists; `absent` is what leaving it out means.

    The rule stands on the parent: one on an optional field itself does not run when the field comes or goes.
    """
    if absent:
        new, old = (f"(has({side}.{path}) ? {side}.{path} : {absent})" for side in ("self", "oldSelf"))
        return immutable(f"{new} == {old}", name)
    return immutable(
        f"has(self.{path}) == has(oldSelf.{path}) && (!has(self.{path}) || self.{path} == oldSelf.{path})",
        name,
    )


def immutable(expression: str, name: str) -> Rule:
    """A rule about what an object was before."""
    return Rule(expression, f"{name} cannot be changed", "delete the object and create it anew")


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
