"""Text into plain data: what is read, and what is refused before it can hurt."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.contract.document import (
    MAX_DOCUMENT_BYTES,
    load_document,
    load_documents,
    plain_mapping,
)
from superinfer_core.contract.problems import ContractInvalid


def problem(text: str | bytes) -> str:
    with pytest.raises(ContractInvalid) as refused:
        load_document(text)
    assert len(str(refused.value)) < 1000
    assert all(p.field and p.message and p.fix for p in refused.value.problems)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: 1\nb: [x, 2.5, true, null]", {"a": 1, "b": ["x", 2.5, True, None]}, id="yaml"),
        pytest.param('{"a": {"b": [1, "x", false]}}', {"a": {"b": [1, "x", False]}}, id="json"),
        pytest.param("{a: 1, b: two} # flow style", {"a": 1, "b": "two"}, id="yaml that begins with a brace"),
        pytest.param("﻿a: 1", {"a": 1}, id="byte order mark"),
        pytest.param(b"\xef\xbb\xbfa: 1", {"a": 1}, id="byte order mark in bytes"),
        pytest.param('a: "300"', {"a": "300"}, id="quoted numbers are text"),
        pytest.param("a: '99.95'", {"a": "99.95"}, id="single quotes"),
        pytest.param("a: 1:30", {"a": "1:30"}, id="no sexagesimal numbers"),
        pytest.param("a: 010", {"a": "010"}, id="no octal numbers"),
        pytest.param("a: 0x1F", {"a": "0x1F"}, id="no hexadecimal numbers"),
        pytest.param("a: 1_000", {"a": "1_000"}, id="no underscores in numbers"),
        pytest.param("a: yes\nb: off", {"a": "yes", "b": "off"}, id="yes and off are text"),
        pytest.param("a: 2026-01-01", {"a": "2026-01-01"}, id="dates are text"),
        pytest.param("a: 1e3", {"a": 1000.0}, id="exponents"),
        pytest.param("a:\n", {"a": None}, id="nothing is null"),
        pytest.param("a: |\n  x\n  y\n", {"a": "x\ny\n"}, id="block text"),
        pytest.param("---\na: 1\n...\n", {"a": 1}, id="document markers"),
        pytest.param("a: 9223372036854775807", {"a": 2**63 - 1}, id="largest whole number"),
    ],
)
def test_documents_are_read_as_their_json_subset(text: str | bytes, want: dict[str, Any]) -> None:
    assert load_document(text) == want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "0 documents", id="empty"),
        pytest.param("# only a comment", "0 documents", id="comment only"),
        pytest.param("a: 1\n---\na: 2", "2 documents", id="two documents"),
        pytest.param("just text", "not a mapping", id="a scalar"),
        pytest.param("- a\n- b", "not a mapping", id="a list"),
        pytest.param("[1, 2]", "not a mapping", id="a JSON list"),
        pytest.param("a: 1\n b: 2", "line 2", id="bad indentation names its line"),
        pytest.param('{"a": 1', "neither YAML nor JSON", id="truncated JSON"),
        pytest.param("a: 1\na: 2", "twice", id="duplicate key"),
        pytest.param('{"a": {"b": 1, "b": 2}}', "twice", id="duplicate key in JSON"),
        pytest.param("a: &x 1", "anchor", id="an anchor"),
        pytest.param("a: *x", "anchor", id="an alias"),
        pytest.param("a: {<<: {b: 1}}", "merge", id="a merge key"),
        pytest.param("a: !!binary aGk=", "tag", id="a tag"),
        pytest.param("a: !!python/object/apply:os.system [id]", "tag", id="a python tag"),
        pytest.param("? [a]\n: b", "field name", id="a list as field name"),
        pytest.param("a: .nan", "not a finite number", id="nan"),
        pytest.param("a: -.inf", "not a finite number", id="minus infinity"),
        pytest.param('{"a": [0, NaN]}', "a[1]", id="nan in JSON is named by its place"),
        pytest.param('{"a": -Infinity}', "not a finite number", id="infinity in JSON"),
        pytest.param("a: 1" + "0" * 400, "too large", id="10^400"),
        pytest.param('{"a": 1' + "0" * 400 + "}", "a: is too large", id="10^400 in JSON"),
        pytest.param('{"a": 1e400}', "too large", id="1e400 in JSON"),
        pytest.param("a: 1e400", "too large", id="1e400"),
        pytest.param("a: 9223372036854775808", "too large", id="2^63"),
        pytest.param("a: \x00", "control characters", id="a zero byte"),
        pytest.param(b"a: \xff", "not UTF-8", id="not UTF-8"),
        pytest.param("a: 1".encode("utf-16"), "not UTF-8", id="UTF-16"),
        pytest.param('{"a": "\\ud800"}', "surrogate", id="half a character in JSON"),
        pytest.param('a: "\ud800"', "surrogate", id="half a character"),
        pytest.param("x" * (MAX_DOCUMENT_BYTES + 1), "larger than", id="too large"),
        pytest.param("[" * 60_000, "deeper than", id="deep nesting"),
        pytest.param('{"a":' * 10_000, "deeper than", id="deep nesting in JSON"),
        pytest.param("- " * 30_000, "deeper than", id="deep nesting of dashes"),
        pytest.param("".join(f"k{i}: 1\n" for i in range(5000)), "more than 4096", id="too many values"),
    ],
)
def test_what_is_no_document_says_why(text: str | bytes, says: str) -> None:
    assert says in problem(text)


def test_a_few_bytes_cannot_stand_for_gigabytes() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]" for i in range(20)]
    assert "anchor" in problem("\n".join(lines))


def test_a_file_of_several_documents_skips_empty_ones() -> None:
    assert load_documents("---\na: 1\n---\n---\nb: 2\n") == ({"a": 1}, {"b": 2})


class Surprise:
    def __repr__(self) -> str:
        raise RuntimeError("must not be printed")


@pytest.mark.parametrize(
    "value",
    [float("nan"), 10**400, b"bytes", {1: 2}, {"a": {"b": object()}}, {1, 2}, Surprise(), "\ud800"],
    ids=lambda value: type(value).__name__,
)
def test_a_mapping_from_elsewhere_is_held_to_the_same_limits(value: Any) -> None:
    with pytest.raises(ContractInvalid):
        plain_mapping({"field": value})


def test_a_mapping_that_contains_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(ContractInvalid, match="deeper"):
        plain_mapping(endless)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), json_values, max_size=4))
def test_json_comes_back_as_it_was(document: dict[str, Any]) -> None:
    assert load_document(json.dumps(document)) == document
    assert plain_mapping(document) == document


def attempt(text: str | bytes) -> Any:
    try:
        return load_document(text)
    except ContractInvalid as refused:
        return refused


@given(st.text(max_size=300) | st.binary(max_size=300))
def test_any_text_is_a_mapping_or_contract_invalid(text: str | bytes) -> None:
    outcome = attempt(text)
    assert isinstance(outcome, dict) or outcome.problems
