"""An answer that was cut has to begin as the whole one does."""

import pytest

from superinfer_bench.chaos.answers import Answer, Choice
from superinfer_bench.failover.trial import begins_as


def answer(*choices):
    return Answer(choices={number: Choice(tokens=tokens) for number, tokens in enumerate(choices)})


@pytest.mark.parametrize(
    ("whole", "begun", "same"),
    [
        pytest.param(answer([1, 2, 3]), answer([1, 2]), True, id="its beginning"),
        pytest.param(answer([1, 2, 3]), answer([]), True, id="nothing yet"),
        pytest.param(answer([1, 2, 3]), answer([1, 4]), False, id="another token"),
        pytest.param(answer([1, 2]), answer([1, 2, 3]), False, id="longer than the whole"),
        pytest.param(answer([1, 2], [5, 6]), answer([1], [5, 7]), False, id="another token of one choice"),
    ],
)
def test_begins_as(whole, begun, same):
    assert begins_as(whole, begun) is same
