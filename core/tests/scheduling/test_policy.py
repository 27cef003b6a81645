"""What may stand in a policy file, and what is said of what may not."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.scheduling.policy import Order, PolicyInvalid, SchedulingPolicy
from superinfer_core.scheduling.urgency import Form

EXAMPLE = Path(__file__).parents[3] / "docs" / "policy.example.yaml"


def test_an_empty_policy_is_the_default() -> None:
    assert SchedulingPolicy.from_mapping({}) == SchedulingPolicy()


def test_the_example_in_the_documents_has_every_setting_with_its_default() -> None:
    stated = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert set(stated) == {field.name for field in fields(SchedulingPolicy)} - {"urgency"}
    assert SchedulingPolicy.from_mapping(stated) == SchedulingPolicy()


def test_what_is_stated_counts_and_the_rest_stays() -> None:
    stated = {"order": "edf", "max_preemptions": 3, "shed_lost": False, "admission_quantile": None}
    policy = SchedulingPolicy.from_mapping(stated | {"urgency": {"form": "Exponential", "k": 2}})
    assert (policy.order, policy.max_preemptions, policy.shed_lost) == (Order.EDF, 3, False)
    assert (policy.urgency.form, policy.urgency.k) == (Form.EXPONENTIAL, 2.0)
    assert policy.reserve_load == SchedulingPolicy().reserve_load


@pytest.mark.parametrize(
    ("field", "value", "fix"),
    [
        pytest.param("max_step_ms", 0, "at least 1", id="below the range"),
        pytest.param("token_margin", 1.5, "at most 1", id="above the range"),
        pytest.param("max_step_ms", float("nan"), "number", id="NaN"),
        pytest.param("max_step_ms", float("inf"), "number", id="infinity"),
        pytest.param("max_step_ms", 10**400, "number", id="10^400"),
        pytest.param("max_step_ms", True, "number", id="true is no number"),
        pytest.param("max_step_ms", "200", "number", id="a number in quotes"),
        pytest.param("max_step_ms", None, "number", id="nothing"),
        pytest.param("max_preemptions", 1.5, "whole", id="half a preemption"),
        pytest.param("shed_lost", 1, "true or false", id="one for true"),
        pytest.param("order", "lifo", "slack", id="no such order"),
        pytest.param("max_stepms", 3, "max_step_ms", id="a mistyped name"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(field: str, value: Any, fix: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        SchedulingPolicy.from_mapping({field: value})
    assert refused.value.field == field
    assert fix in refused.value.fix
    assert len(str(refused.value)) < 600


def test_a_mistake_in_the_urgency_profile_is_one_of_the_policy() -> None:
    with pytest.raises(PolicyInvalid, match=r"urgency\.k='steep'"):
        SchedulingPolicy.from_mapping({"urgency": {"k": "steep"}})


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from([*SchedulingPolicy.__slots__, "colour"]), anything))
def test_any_mapping_is_a_policy_or_refused(data: dict[str, Any]) -> None:
    try:
        policy = SchedulingPolicy.from_mapping(data)
    except PolicyInvalid as refused:
        assert refused.field.partition(".")[0] in data  # noqa: PT017 - either outcome is fine
    else:
        assert policy.max_preemptions >= 0
