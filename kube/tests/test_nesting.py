"""Objects nested without end: the API server takes them, so one of them must not hide all others."""

import json

import msgspec
import pytest

from superinfer_kube.nesting import DEEPEST_LEVELS, cut, decode_json


def nested(levels, inside="1"):
    return '{"a":' * levels + inside + "}" * levels


def levels_of(value):
    levels = 0
    while isinstance(value, dict | list) and value:
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
        levels += 1
    return levels


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param('{"a": {"b": {"c": 1}}, "d": 2}', {"a": {"b": None}, "d": 2}, id="mappings"),
        pytest.param("[[[1, 2], 3], [[4]], 5]", [[None, 3], [None], 5], id="lists"),
        pytest.param('{"a": [{"b": 1}, {"c": []}]}', {"a": [None, None]}, id="lists of mappings"),
        pytest.param('{"a": {"b": "{[\\"}{"}}', {"a": {"b": '{["}{'}}, id="brackets in text are text"),
        pytest.param(
            '{"a": {"b": "\\\\"}, "c": {"d": {}}}', {"a": {"b": "\\"}, "c": {"d": None}}, id="a backslash"
        ),
        pytest.param('{"a": {}}', {"a": {}}, id="nothing too deep"),
        pytest.param("1", 1, id="a number"),
    ],
)
def test_what_is_too_deep_is_null_and_the_rest_as_it_was(text, want):
    assert json.loads(cut(text.encode(), 2)) == want


def test_what_can_be_read_is_read_whole():
    assert levels_of(decode_json(nested(DEEPEST_LEVELS + 100).encode())) == DEEPEST_LEVELS + 100


@pytest.mark.parametrize("levels", [1_500, 9_000, 200_000])
def test_one_object_nested_without_end_does_not_hide_its_neighbours(levels):
    text = '{"items": [{"name": "deep", "spec": ' + nested(levels) + '}, {"name": "next", "spec": {"b": 1}}]}'
    deep, neighbour = decode_json(text.encode())["items"]
    assert neighbour == {"name": "next", "spec": {"b": 1}}
    assert deep["name"] == "deep"
    assert levels_of(deep["spec"]) < DEEPEST_LEVELS


def test_what_is_no_json_is_still_none():
    with pytest.raises(msgspec.DecodeError):
        decode_json(b'{"a": ' * 2000)
