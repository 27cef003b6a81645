"""Conditions of a pool, and when their times move."""

import pytest

from superinfer_core.api.v1alpha1.conditions import dated, read_conditions
from superinfer_core.api.v1alpha1.pool_status import PoolReason
from superinfer_core.placement import Constraint, Flagged, Unplaced
from superinfer_core.pools.conditions import pool_conditions
from superinfer_core.pools.standing import PoolRefusal, Standing

FULL = {"generation": 4, "wanted": 2, "existing": 2, "ready": 2, "updated": 2}
UNPLACED = (Unplaced("shop/p", 1, Constraint.DEVICES_IN_USE, "0/3 nodes can take an executor", ()),)


def states(**changes):
    found = pool_conditions(Standing(**(FULL | changes)))
    return {condition.type: (condition.status, condition.reason) for condition in found}


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param(
            {},
            {
                "Ready": ("True", "Ready"),
                "Accepted": ("True", "Accepted"),
                "Placed": ("True", "Placed"),
                "Serving": ("True", "Serving"),
            },
            id="all is well",
        ),
        pytest.param(
            {"refusal": PoolRefusal(PoolReason.INVALID_SPEC, "no")},
            {
                "Ready": ("False", "InvalidSpec"),
                "Accepted": ("False", "InvalidSpec"),
                "Placed": ("Unknown", "NotAccepted"),
                "Serving": ("True", "Serving"),
            },
            id="an edit with a mistake goes on serving",
        ),
        pytest.param(
            {"unplaced": UNPLACED, "existing": 1, "ready": 1, "updated": 1},
            {
                "Ready": ("False", "PartlyPlaced"),
                "Placed": ("False", "PartlyPlaced"),
                "Serving": ("True", "Serving"),
            },
            id="one of two has no place",
        ),
        pytest.param(
            {"unplaced": UNPLACED, "wanted": 1, "existing": 0, "ready": 0, "updated": 0},
            {"Placed": ("False", "NotPlaced"), "Serving": ("False", "NoExecutorReady")},
            id="none has a place",
        ),
        pytest.param(
            {"ready": 1},
            {
                "Ready": ("False", "ExecutorsStarting"),
                "Placed": ("True", "Placed"),
                "Serving": ("True", "Serving"),
            },
            id="one is starting",
        ),
        pytest.param(
            {"ready": 0, "trouble": (("ImagePullBackOff", "p-0-1: no such image"),)},
            {"Ready": ("False", "ExecutorsFailed"), "Serving": ("False", "ExecutorsFailed")},
            id="none can start",
        ),
        pytest.param(
            {"existing": 3, "ready": 3, "updated": 1},
            {"Ready": ("False", "Updating"), "Serving": ("True", "Serving")},
            id="being replaced by a new revision",
        ),
        pytest.param(
            {"draining": 1},
            {"Ready": ("True", "ExecutorsDraining")},
            id="the last of the old ones is leaving",
        ),
        pytest.param(
            {"wanted": 0, "existing": 0, "ready": 0, "updated": 0},
            {
                "Ready": ("True", "ScaledToZero"),
                "Placed": ("True", "ScaledToZero"),
                "Serving": ("False", "ScaledToZero"),
            },
            id="scaled to zero is ready and serves nothing",
        ),
        pytest.param(
            {"flagged": (Flagged("shop/p-0-1", "shop/p", Constraint.DEVICE_MISMATCH, "no NVLink"),)},
            {"Ready": ("False", "DeviceMismatch"), "Placed": ("False", "DeviceMismatch")},
            id="on hardware that is not what was asked for",
        ),
        pytest.param(
            {"deleting": True, "wanted": 0, "existing": 1, "draining": 1, "ready": 0},
            {"Ready": ("False", "Deleting"), "Serving": ("False", "Deleting")},
            id="being deleted",
        ),
        pytest.param(
            {"ready": 1, "existing": 1, "updated": 1, "waiting": (1, "2026-01-01T00:00:00Z")},
            {"Ready": ("False", "ExecutorsFailed")},
            id="waiting before the next try",
        ),
    ],
)
def test_conditions(changes, want):
    assert want.items() <= states(**changes).items()


def test_messages_name_the_executor_and_when_it_is_tried_again():
    standing = Standing(
        **(
            FULL
            | {
                "ready": 1,
                "trouble": (("Evicted", "p-1-4: low on memory"),),
                "waiting": (1, "2026-01-01T00:00:00Z"),
            }
        )
    )
    message = pool_conditions(standing)[0].message
    assert "p-1-4: low on memory" in message
    assert "not before 2026-01-01T00:00:00Z" in message


def test_every_condition_says_which_generation_it_is_about():
    assert {condition.observed_generation for condition in pool_conditions(Standing(**FULL))} == {4}


def test_a_long_message_is_cut():
    standing = Standing(generation=1, refusal=PoolRefusal(PoolReason.INVALID_SPEC, "x" * 5000))
    assert all(len(condition.message) <= 1024 for condition in pool_conditions(standing))


def test_a_time_moves_only_where_the_status_changed():
    before = [
        {"type": "Ready", "status": "True", "lastTransitionTime": "old"},
        {"type": "Placed", "status": "False", "lastTransitionTime": "old"},
        {"type": "Serving", "status": "Perhaps", "lastTransitionTime": "old"},
    ]
    found = dated(pool_conditions(Standing(**FULL)), read_conditions({"conditions": before}), "new")
    assert {c.type: c.last_transition_time for c in found} == {
        "Ready": "old",
        "Placed": "new",
        "Accepted": "new",
        "Serving": "new",
    }
