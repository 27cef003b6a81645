"""What a model says, as the API server takes it."""

from enum import StrEnum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, StringConstraints, create_model

from superinfer_operator.crdgen.schema import CannotBeStructural, structural_schema


class Colour(StrEnum):
    """Which colour."""

    RED = "Red"
    BLUE = "Blue"


class Inner(BaseModel):
    """Something nested."""

    size: Annotated[int, Field(ge=1, le=9)] = Field(default=3, description="How large.")


class Loop(BaseModel):
    again: "Loop | None" = None


def model(annotation: Any, default: Any = ...) -> type[BaseModel]:
    return create_model("Sample", field=(annotation, default))


INNER = {
    "description": "Something nested.",
    "properties": {
        "size": {
            "default": 3,
            "description": "How large.",
            "format": "int32",
            "maximum": 9,
            "minimum": 1,
            "type": "integer",
        }
    },
    "type": "object",
}


@pytest.mark.parametrize(
    ("annotation", "default", "want"),
    [
        pytest.param(Inner, ..., INNER, id="a reference is inlined"),
        pytest.param(
            Inner,
            Field(description="Here."),
            INNER | {"description": "Here."},
            id="the field's own description wins",
        ),
        pytest.param(Inner | None, None, INNER, id="null and its default disappear"),
        pytest.param(
            Inner,
            Field(default_factory=Inner, json_schema_extra={"default": {}}),
            INNER | {"default": {}},
            id="a deliberate default stays",
        ),
        pytest.param(Inner, Field(default_factory=Inner), INNER, id="a default factory alone is no default"),
        pytest.param(
            Colour,
            ...,
            {"description": "Which colour.", "enum": ["Red", "Blue"], "type": "string"},
            id="an enum keeps its order",
        ),
        pytest.param(
            list[Inner],
            Field(max_length=4, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
            {"items": INNER, "maxItems": 4, "type": "array", "x-kubernetes-list-type": "atomic"},
            id="a list with the way it merges",
        ),
        pytest.param(
            dict[Annotated[str, StringConstraints(max_length=5)], Annotated[str, Field(max_length=9)]],
            Field(max_length=2),
            {
                "additionalProperties": {"maxLength": 9, "type": "string"},
                "maxProperties": 2,
                "type": "object",
            },
            id="a map without a schema of its keys",
        ),
        pytest.param(
            dict[str, Any],
            Field(max_length=2, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
            {"maxProperties": 2, "type": "object", "x-kubernetes-preserve-unknown-fields": True},
            id="what is opaque says so",
        ),
        pytest.param(
            Annotated[int, Field(ge=0, le=2**31)],
            ...,
            {"format": "int64", "maximum": 2**31, "minimum": 0, "type": "integer"},
            id="beyond 32 bits",
        ),
        pytest.param(bool, ..., {"type": "boolean"}, id="a boolean"),
    ],
)
def test_each_construct_has_its_form(annotation: Any, default: Any, want: dict[str, Any]) -> None:
    assert structural_schema(model(annotation, default))["properties"]["field"] == want


def test_what_may_be_left_out_is_not_required() -> None:
    sample = create_model("Sample", must=(int, ...), may=(int | None, None), has=(int, 4))
    assert structural_schema(sample)["required"] == ["must"]


@pytest.mark.parametrize(
    ("annotation", "path"),
    [
        pytest.param(int | str, "field", id="a union"),
        pytest.param(float, "field", id="a float"),
        pytest.param(Loop, "field.again", id="recursion"),
        pytest.param(tuple[int, str], "field", id="a tuple"),
        pytest.param(dict[str, Any], "field", id="anything without a mark"),
        pytest.param(Annotated[int, Field(gt=0)], "field", id="an exclusive bound"),
        pytest.param(list[int | str], "field[]", id="a union inside a list"),
    ],
)
def test_what_has_no_form_is_refused_by_path(annotation: Any, path: str) -> None:
    with pytest.raises(CannotBeStructural) as refused:
        structural_schema(model(annotation))
    assert refused.value.path == path


def test_the_same_models_give_the_same_bytes() -> None:
    first, second = (structural_schema(model(Inner | None, None)) for _ in range(2))
    assert repr(first) == repr(second)
