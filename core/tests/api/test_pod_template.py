"""How deep a podTemplate may be nested: the API server takes any depth, and nothing that reads it does."""

import pytest
from pydantic import ValidationError

from superinfer_core.api.v1alpha1.pod_template import MOST_LEVELS, PodTemplateSpec


def nested(levels, *, lists):
    value = "end"
    for level in range(levels):
        value = [value] if lists and level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("lists", [False, True], ids=["mappings", "mappings and lists"])
def test_what_a_pod_could_need_is_taken(lists):
    deep = nested(MOST_LEVELS, lists=lists)
    deep = deep if isinstance(deep, dict) else {"a": nested(MOST_LEVELS - 1, lists=lists)}
    assert PodTemplateSpec.model_validate({"spec": deep}).spec == deep


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 5_000, 100_000])
def test_what_is_deeper_is_named(levels):
    with pytest.raises(ValidationError, match="nested deeper than 64 levels"):
        PodTemplateSpec.model_validate({"spec": nested(levels, lists=False)})
