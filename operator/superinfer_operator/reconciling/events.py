"""Kubernetes Events: what happened to a pool or contract, told once, when it happens.

Promise: an event follows a transition (a condition that changed, an executor made or ended), never a state
that goes on. Builders are pure.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from superinfer_core.api.v1alpha1.labels import OPERATOR_FIELD_MANAGER
from superinfer_core.api.v1alpha1.meta import API_VERSION
from superinfer_core.api.v1alpha1.pool_status import PoolReason

_MAX_NOTE: Final = 1000
_NAMING_CHARACTERS: Final = 16
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


class EventType(StrEnum):
    """How bad it is."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class About:
    """The object an event is about."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Happening:
    """One event.

    Attributes:
        about: the object.
        type: Normal or Warning.
        reason: a CamelCase word.
        action: what was done, CamelCase.
        note: in words.
    """

    about: About
    type: EventType
    reason: str
    action: str
    note: str


def event_document(happening: Happening, *, now_micro: str, instance: str, number: int) -> dict[str, Any]:
    """An events.k8s.io/v1 Event.

    Args:
        happening: what happened.
        now_micro: RFC 3339 with microseconds.
        instance: this operator, e.g. its pod.
        number: makes its name unique within this instance.
    """
    about = happening.about
    seed = f"{instance}/{number}/{now_micro}".encode()
    suffix = hashlib.blake2b(seed, digest_size=_NAMING_CHARACTERS // 2).hexdigest()
    return {
        "metadata": {"name": f"{about.name[:200]}.{suffix}", "namespace": about.namespace},
        "eventTime": now_micro,
        "reportingController": OPERATOR_FIELD_MANAGER,
        "reportingInstance": instance[:128],
        "action": happening.action,
        "reason": happening.reason,
        "type": happening.type.value,
        "note": happening.note[:_MAX_NOTE],
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
    }


def condition_events(
    about: About, before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> list[Happening]:
    """What changed between two lists of conditions: a status, or the reason of one that is not True."""
    known = {condition.get("type"): condition for condition in before}
    found = []
    for condition in after:
        old = known.get(condition["type"])
        status, reason = condition["status"], condition["reason"]
        if old is None and (status != "False" or reason in _EXPECTED):
            # The first look at an object finds nothing remarkable.
            continue
        if (
            old is not None
            and old.get("status") == status
            and (status == "True" or old.get("reason") == reason)
        ):
            continue
        found.append(
            Happening(
                about=about,
                type=EventType.WARNING if status == "False" and reason not in _EXPECTED else EventType.NORMAL,
                reason=reason,
                action=f"{condition['type']}{status}",
                note=f"{condition['type']} is {status}: {condition.get('message', '')}",
            )
        )
    # Ready repeats what another condition says more exactly.
    told = {event.reason for event in found if not event.action.startswith("Ready")}
    return [event for event in found if not (event.action.startswith("Ready") and event.reason in told)]
