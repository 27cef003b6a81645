"""Events: what happened, told once and by one name."""

from superinfer_core.api.v1alpha1.conditions import Condition, Status, read_conditions
from superinfer_operator.reconciling.events import (
    About,
    EventType,
    Happening,
    condition_events,
    event_document,
)

ABOUT = About("ChipletPool", "shop", "p", "u")


def condition(kind, status, reason, message="m"):
    return Condition(kind, Status(status), reason, message)


def test_a_transition_becomes_an_event_that_says_all_of_it():
    after = [condition("Accepted", "False", "InvalidSpec", "spec.x is wrong")]
    assert condition_events(ABOUT, [], after) == [
        Happening(
            ABOUT,
            EventType.WARNING,
            "InvalidSpec",
            "AcceptedFalse",
            "Accepted is False: spec.x is wrong",
        )
    ]


def test_a_condition_that_somebody_wrote_by_hand_may_lack_anything():
    before = read_conditions({"conditions": [{}, {"type": "A"}, {"type": "A", "status": "Perhaps"}, None]})
    assert [event.reason for event in condition_events(ABOUT, before, [condition("A", "False", "Y")])] == [
        "Y"
    ]


def test_two_events_of_one_moment_have_two_names():
    happening = Happening(ABOUT, EventType.NORMAL, "R", "A", "n" * 5000)
    at = "2026-01-01T00:00:00.000000Z"
    one, two = (event_document(happening, now_micro=at, instance="i", number=n) for n in (1, 2))
    assert one["metadata"]["name"] != two["metadata"]["name"]
    assert len(one["note"]) <= 1024
