"""Conditions of any object: the form decisions make them in, how one is decided, dated and read back.

`Condition` is small and frozen, because thousands are held in memory; `meta.ConditionStatus` is what is
written. What is decided of contracts and pools is in `contract.conditions` and `pools.conditions`. Pure;
times are RFC 3339 text passed in.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from superinfer_core.api.v1alpha1.meta import ConditionStatus
from superinfer_core.words import shortened

MAX_MESSAGE_CHARACTERS: Final = 1024

Subject = TypeVar("Subject")


class Status(StrEnum):
    """Of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of an object.

    Attributes:
        type: what it is about; of a closed list for each kind of object.
        status, reason, message: what is so, why in one CamelCase word, and why in words.
        observed_generation: metadata.generation it was computed from.
        last_transition_time: when the status last changed; "" before it is dated.
    """

    type: str
    status: Status
    reason: str
    message: str
    observed_generation: int = 0
    last_transition_time: str = ""

    def as_status(self) -> ConditionStatus:
        """As it is written into an object's status."""
        return ConditionStatus(
            type=str(self.type),
            status=self.status.value,
            reason=str(self.reason),
            message=self.message,
            observed_generation=self.observed_generation,
            last_transition_time=self.last_transition_time or None,
        )


Verdict = tuple[Status, str, str]
"""Status, reason and message of a condition."""


def condition_of(
    kind: str,
    subject: Subject,
    checks: Iterable[Callable[[Subject], Verdict | None]],
    *,
    otherwise: Verdict,
    generation: int,
) -> Condition:
    """A condition by an ordered chain of checks: the first that applies decides."""
    verdicts = (check(subject) for check in checks)
    status, reason, message = next((found for found in verdicts if found is not None), otherwise)
    return Condition(kind, status, reason, shortened(message, MAX_MESSAGE_CHARACTERS), generation)


def dated(conditions: Iterable[Condition], before: Iterable[Condition], now: str) -> tuple[Condition, ...]:
    """The conditions with their times: one moves only where the status changed.

    Args:
        conditions: what holds now.
        before: conditions of the object's status.
        now: RFC 3339 text.
    """
    known = {condition.type: condition for condition in before}
    stamped = []
    for condition in conditions:
        old = known.get(condition.type)
        since = old.last_transition_time if old is not None and old.status is condition.status else ""
        stamped.append(replace(condition, last_transition_time=since or now))
    return tuple(stamped)


def read_conditions(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The conditions of a stored status; one that somebody wrote by hand and nobody can read is left out."""
    found = []
    for condition in status.get("conditions") or ():
        try:
            kind, state = str(condition["type"]), Status(condition["status"])
        except (KeyError, TypeError, ValueError):
            continue
        found.append(
            Condition(
                kind,
                state,
                str(condition.get("reason") or ""),
                str(condition.get("message") or ""),
                int(condition.get("observedGeneration") or 0),
                str(condition.get("lastTransitionTime") or ""),
            )
        )
    return tuple(found)
