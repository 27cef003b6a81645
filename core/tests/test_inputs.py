"""What people name and write: bounded when it is read, one error for all that can be wrong with it."""

import io

import pytest

from superinfer_core.scheduling.policy import PolicyInvalid, SchedulingPolicy
from superinfer_core.small_input import small_input
from superinfer_core.yaml_text import NotYaml, load_yaml, load_yaml_documents


def test_what_is_small_enough_is_read_whole() -> None:
    assert small_input(io.BytesIO(b"12345678").read, "f", 8) == b"12345678"


def test_what_is_larger_is_refused_and_hardly_read() -> None:
    endless = io.BytesIO(b"x" * 1000)
    with pytest.raises(OSError, match="is larger than 8 bytes; is it the right file") as refused:
        small_input(endless.read, "device", 8)
    assert refused.value.filename == "device"
    assert endless.tell() == 9


NOT_YAML = [
    ("a bracket left open", "keys: [", "did not find expected node content"),
    ("a tab as indentation", "a:\n\t- b", "line 2"),
    ("a date that does not exist", "at: 2024-13-45", "holds a value that is none"),
    ("a number without end", "n: " + "9" * 5000, "holds a value that is none"),
    ("a tag without a constructor", "!!python/object:os.system {}", "line 1"),
    ("a truth that is none", "!!bool maybe", "holds a value that is none"),
    ("a control character", "a: \x00", "holds a character"),
    ("nested without end", "[" * 5000, ""),
    ("two documents", "a: 1\n---\nb: 2", "holds 2 documents where one was expected"),
]


@pytest.mark.parametrize(
    ("text", "words"), [case[1:] for case in NOT_YAML], ids=[case[0] for case in NOT_YAML]
)
def test_all_that_is_not_yaml_is_one_error(text: str, words: str) -> None:
    with pytest.raises(NotYaml) as error:
        load_yaml(text)
    assert words in str(error.value)


@pytest.mark.parametrize("text", ["key: *si-secret", "key: !si-secret x"], ids=["alias", "tag"])
def test_an_error_never_quotes_the_text(text: str) -> None:
    with pytest.raises(NotYaml) as error:
        load_yaml(text)
    assert "si-secret" not in str(error.value)


def test_documents_are_read_in_order_and_nothing_is_none() -> None:
    assert load_yaml_documents("a: 1\n---\n---\nb: 2") == [{"a": 1}, None, {"b": 2}]
    assert load_yaml("# nothing\n") is None


POLICIES = [
    ("not a mapping", "[]", "(policy)|document"),
    ("no such field", "haste: 1", "haste"),
    ("not YAML", "max_step_ms: [", "is neither YAML nor JSON"),
    ("no number", "max_step_ms: .nan", "max_step_ms"),
    ("too large a number", "max_step_ms: " + "9" * 5000, "max_step_ms"),
    ("text", "reserve_share: many", "reserve_share='many': write a number"),
    ("a switch that is a number", "step_budget: 1", "write true or false"),
    ("a profile that is none", "urgency: 7", "urgency.(profile)"),
    ("a form that is none", "urgency: {name: x, form: Banana}", "urgency.form"),
    ("two of them", "size_weight: 1\n---\nsize_weight: 2", "write one"),
]


@pytest.mark.parametrize(
    ("text", "words"), [case[1:] for case in POLICIES], ids=[case[0] for case in POLICIES]
)
def test_a_policy_that_is_none_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(PolicyInvalid) as invalid:
        SchedulingPolicy.from_yaml(text)
    assert any(word in str(invalid.value) for word in words.split("|"))
    assert len(str(invalid.value)) < 600


def test_a_policy_of_nothing_is_the_default() -> None:
    assert SchedulingPolicy.from_yaml("# all as it is\n") == SchedulingPolicy()
    assert SchedulingPolicy.from_yaml("reserve_places: 0").reserve_places == 0
