"""Which fields of a document no model knows, and which known one was probably meant.

The models ignore what they do not know; a document from a person is checked here first. Pure.
"""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from superinfer_core.api.v1alpha1.meta import ObjectMeta
from superinfer_core.contract.field_errors import closest
from superinfer_core.contract.problems import FieldProblem
from superinfer_core.words import shown

_KUBERNETES_METADATA: Final = frozenset(
    {
        "deletionGracePeriodSeconds",
        "finalizers",
        "generateName",
        "managedFields",
        "ownerReferences",
        "selfLink",
    }
)
"""What `kubectl get -o yaml` prints beside the metadata we keep."""


def unknown_fields(document: Mapping[str, Any], model: type[BaseModel]) -> list[FieldProblem]:
    """A problem for every field the model does not have, in document order."""
    return list(_walk(document, model, "", _homes(model)))


def _walk(
    document: Mapping[str, Any], model: type[BaseModel], path: str, homes: Mapping[str, str]
) -> Iterator[FieldProblem]:
    fields = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
    for name, value in document.items():
        here = f"{path}.{name[:100]}" if path else name[:100]
        if name in fields:
            inner = _model_in(fields[name])
            if inner is None:
                continue
            for item, item_path in _mappings(value, here):
                yield from _walk(item, inner, item_path, homes)
        elif not (model is ObjectMeta and name in _KUBERNETES_METADATA):
            yield FieldProblem(here, shown(value), "is not a known field", _fix(name, list(fields), homes))


def _fix(name: str, siblings: list[str], homes: Mapping[str, str]) -> str:
    if (meant := closest(name, siblings)) is not None:
        return f"did you mean {meant}?"
    if (elsewhere := closest(name, list(homes))) is not None and elsewhere == name:
        return f"it belongs at {homes[elsewhere]}"
    return f"remove it; known here: {', '.join(sorted(siblings))}"


def _homes(model: type[BaseModel], path: str = "") -> dict[str, str]:
    """Where each field name of a model lives; the outermost place wins."""
    homes: dict[str, str] = {}
    inner: list[tuple[type[BaseModel], str]] = []
    for name, info in model.model_fields.items():
        alias = info.alias or name
        if alias == "status":
            continue
        here = f"{path}.{alias}" if path else alias
        homes.setdefault(alias, here)
        if (nested := _model_in(info.annotation)) is not None and nested is not ObjectMeta:
            inner.append((nested, here))
    for nested, here in inner:
        for name, home in _homes(nested, here).items():
            homes.setdefault(name, home)
    return homes


def _mappings(value: Any, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    if isinstance(value, Mapping):
        yield value, path
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                yield item, f"{path}[{index}]"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model an annotation holds: itself, optional, annotated, or the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, UnionType, Annotated, list):
        for argument in get_args(annotation):
            if (model := _model_in(argument)) is not None:
                return model
    return None
