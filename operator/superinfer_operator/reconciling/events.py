"""Kubernetes Events: what happened to a pool or contract, told once, when it happens.

Promise: an event follows a transition (a condition that changed, an executor made or ended), never a state
that goes on. Builders are pure.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from superinfer_core.api.v1alpha1.conditions import Condition
from superinfer_core.api.v1alpha1.labels import OPERATOR_FIELD_MANAGER
from superinfer_core.api.v1alpha1.meta import API_VERSION
from superinfer_core.api.v1alpha1.transitions import transitions

_MAX_NOTE: Final = 1000
_NAMING_CHARACTERS: Final = 16


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
    api_version: str = API_VERSION


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
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
    }


def condition_events(
    about: About, before: Iterable[Condition], after: Iterable[Condition]
) -> list[Happening]:
    """What changed between two lists of conditions."""
    return [
        Happening(
            about=about,
            type=EventType.WARNING if one.worrying else EventType.NORMAL,
            reason=one.condition.reason,
            action=f"{one.condition.type}{one.condition.status}",
            note=f"{one.condition.type} is {one.condition.status}: {one.condition.message}",
        )
        for one in transitions(before, after)
    ]
