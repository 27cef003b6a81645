"""Which changes of an object's conditions are worth telling, and which of them are worrying. Pure.

A transition is a status that changed, or the reason of a condition that is in the state that needs one; a
state that goes on is none, and the first look at an object finds only what is wrong with it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from superinfer_core.api.v1alpha1.conditions import Condition, Status
from superinfer_core.api.v1alpha1.pool_status import PoolConditionType, PoolReason

_EXPECTED: Final = frozenset(
    {
        PoolReason.EXECUTORS_STARTING,
        PoolReason.NO_EXECUTOR_READY,
        PoolReason.UPDATING,
        PoolReason.DELETING,
        PoolReason.SCALED_TO_ZERO,
    }
)
"""False for a while is how these go; no reason to worry anybody."""

_REMARKABLE_WHEN_TRUE: Final = frozenset({PoolConditionType.SCALING_LIMITED})
_SUMMARY: Final = PoolConditionType.READY
"""Repeats what another condition says more exactly; of pools and contracts alike."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A change worth telling.

    Attributes:
        condition: as it is now.
        worrying: something is wrong that was not, or is so for another reason.
    """

    condition: Condition
    worrying: bool


def transitions(before: Iterable[Condition], after: Iterable[Condition]) -> list[Transition]:
    """What changed between two lists of conditions."""
    known = {condition.type: condition for condition in before}
    found = [
        Transition(condition, _worrying(condition))
        for condition in after
        if _is_news(known.get(condition.type), condition)
    ]
    told = {one.condition.reason for one in found if one.condition.type != _SUMMARY}
    return [one for one in found if one.condition.type != _SUMMARY or one.condition.reason not in told]


def _is_news(old: Condition | None, new: Condition) -> bool:
    limited = new.type in _REMARKABLE_WHEN_TRUE and new.status is Status.TRUE
    if old is None:
        return limited or _worrying(new)
    if old.status is not new.status:
        return True
    fine = new.status is (Status.FALSE if new.type in _REMARKABLE_WHEN_TRUE else Status.TRUE)
    return not fine and old.reason != new.reason


def _worrying(condition: Condition) -> bool:
    expected = condition.type in _REMARKABLE_WHEN_TRUE or condition.reason in _EXPECTED
    return condition.status is Status.FALSE and not expected
