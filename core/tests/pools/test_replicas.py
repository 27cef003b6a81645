"""How many executors a pool gets of what is asked for, and what it says of that."""

import pytest

from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.pools.conditions import pool_conditions
from superinfer_core.pools.replicas import replicas_of
from superinfer_core.pools.standing import Standing


def replicas(asked, autoscaling=None):
    spec = {
        "model": {"name": "m"},
        "engine": {"type": "Stub"},
        "chiplet": {"shape": "CPU"},
        "replicas": asked,
    }
    if autoscaling is not None:
        spec["autoscaling"] = autoscaling
    return replicas_of(ChipletPool.model_validate({"metadata": {"name": "p"}, "spec": spec}).spec)


def limited(found):
    standing = Standing(generation=1, wanted=found.wanted, replicas=found)
    return next((c for c in pool_conditions(standing) if c.type == "ScalingLimited"), None)


BOUNDS = {"minReplicas": 2, "maxReplicas": 4}


@pytest.mark.parametrize(
    ("asked", "bounds", "wanted", "reason"),
    [
        pytest.param(7, None, 7, None, id="without bounds, whatever is asked for"),
        pytest.param(3, BOUNDS, 3, "WithinBounds", id="between them"),
        pytest.param(2, BOUNDS, 2, "WithinBounds", id="the fewest"),
        pytest.param(4, BOUNDS, 4, "WithinBounds", id="the most"),
        pytest.param(9, BOUNDS, 4, "TooManyReplicas", id="too many"),
        pytest.param(1, BOUNDS, 2, "TooFewReplicas", id="too few"),
        pytest.param(0, BOUNDS, 2, "TooFewReplicas", id="none, where some are the fewest"),
        pytest.param(
            0, {"minReplicas": 0, "maxReplicas": 4}, 0, "WithinBounds", id="none, where none may be"
        ),
        pytest.param(
            0, {"maxReplicas": 4}, 1, "TooFewReplicas", id="one is the fewest where nothing is said"
        ),
    ],
)
def test_bounds_hold_and_are_told(asked, bounds, wanted, reason):
    found = replicas(asked, bounds)
    assert (found.asked, found.wanted) == (asked, wanted)
    condition = limited(found)
    assert (condition.reason if condition is not None else None) == reason


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        (9, "replicas 9 is asked for, autoscaling.maxReplicas allows 4: the pool has 4 executors"),
        (0, "replicas 0 is asked for, autoscaling.minReplicas allows 2: the pool has 2 executors"),
    ],
)
def test_both_numbers_and_the_field_are_named(asked, want):
    condition = limited(replicas(asked, BOUNDS))
    assert condition.status == "True"
    assert condition.message.startswith(want)
