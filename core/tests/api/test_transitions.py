"""Which changes of conditions are told, and which are worrying."""

import pytest

from superinfer_core.api.v1alpha1.conditions import Condition, Status
from superinfer_core.api.v1alpha1.transitions import transitions


def condition(kind, status, reason, message="m"):
    return Condition(kind, Status(status), reason, message)


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param([], [condition("Ready", "True", "Ready")], [], id="all well at first sight"),
        pytest.param(
            [],
            [condition("Accepted", "False", "InvalidSpec")],
            ["InvalidSpec"],
            id="wrong at first sight",
        ),
        pytest.param(
            [condition("Placed", "True", "Placed")],
            [condition("Placed", "False", "NotPlaced")],
            ["NotPlaced"],
            id="became false",
        ),
        pytest.param(
            [condition("Placed", "False", "NotPlaced", "3 of 4")],
            [condition("Placed", "False", "NotPlaced", "2 of 4")],
            [],
            id="goes on, in other figures",
        ),
        pytest.param(
            [condition("Ready", "False", "ExecutorsStarting")],
            [condition("Ready", "False", "ExecutorsFailed")],
            ["ExecutorsFailed"],
            id="is false for another reason",
        ),
        pytest.param(
            [condition("Ready", "True", "Ready")],
            [condition("Ready", "True", "ExecutorsDraining")],
            [],
            id="still true",
        ),
        pytest.param([], [condition("Placed", "Unknown", "NotAccepted")], [], id="unknown at first sight"),
        pytest.param(
            [],
            [condition("ScalingLimited", "True", "TooManyReplicas")],
            ["TooManyReplicas"],
            id="limited at first sight",
        ),
        pytest.param(
            [], [condition("ScalingLimited", "False", "WithinBounds")], [], id="not limited at first sight"
        ),
        pytest.param(
            [condition("ScalingLimited", "True", "TooManyReplicas")],
            [condition("ScalingLimited", "True", "TooFewReplicas")],
            ["TooFewReplicas"],
            id="limited from the other side",
        ),
        pytest.param(
            [condition("ScalingLimited", "True", "TooManyReplicas", "9 asked")],
            [condition("ScalingLimited", "True", "TooManyReplicas", "12 asked")],
            [],
            id="limited as before",
        ),
        pytest.param(
            [condition("Ready", "True", "Ready"), condition("Accepted", "True", "Accepted")],
            [condition("Ready", "False", "InvalidSpec"), condition("Accepted", "False", "InvalidSpec")],
            ["InvalidSpec"],
            id="Ready does not repeat what another condition says",
        ),
    ],
)
def test_what_changed_is_told_once(before, after, want):
    assert [one.condition.reason for one in transitions(before, after)] == want


@pytest.mark.parametrize(
    ("before", "after", "worrying"),
    [
        pytest.param(condition("A", "True", "X"), condition("A", "False", "Y"), True, id="became false"),
        pytest.param(condition("A", "False", "Y"), condition("A", "True", "X"), False, id="became true"),
        pytest.param(
            condition("Ready", "True", "Ready"),
            condition("Ready", "False", "ExecutorsStarting"),
            False,
            id="is starting",
        ),
        pytest.param(
            condition("ScalingLimited", "False", "WithinBounds"),
            condition("ScalingLimited", "True", "TooManyReplicas"),
            False,
            id="a bound does what it is for",
        ),
        pytest.param(
            condition("ScalingLimited", "True", "TooManyReplicas"),
            condition("ScalingLimited", "False", "WithinBounds"),
            False,
            id="no bound is in the way any more",
        ),
    ],
)
def test_only_what_is_wrong_worries(before, after, worrying):
    assert [one.worrying for one in transitions([before], [after])] == [worrying]
