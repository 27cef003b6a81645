"""Conditions of a pool as ordered chains of pure checks; the first that applies gives the reason."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.api.v1alpha1.conditions import MAX_MESSAGE_CHARACTERS, Status
from superinfer_core.api.v1alpha1.meta import ConditionStatus
from superinfer_core.api.v1alpha1.pool_status import PoolConditionType, PoolReason
from superinfer_core.placement import Flagged, Unplaced
from superinfer_operator.placing.setup import Refusal


@dataclass(frozen=True, slots=True)
class Standing:
    """How a pool stands, in numbers and reasons.

    Attributes:
        generation: that was looked at.
        refusal: why it is not accepted; None where it is.
        deleting: it is being deleted.
        wanted: executors asked for.
        existing, ready, updated, draining: executors that exist, serve, are up to date, are going.
        unplaced: replicas without a chiplet.
        flagged: executors on hardware that is not what was asked for.
        trouble: (reason, message) of executors that cannot start.
        waiting: replicas whose replacement waits, because they failed again and again: (count, until).
    """

    generation: int
    refusal: Refusal | None = None
    deleting: bool = False
    wanted: int = 0
    existing: int = 0
    ready: int = 0
    updated: int = 0
    draining: int = 0
    unplaced: tuple[Unplaced, ...] = ()
    flagged: tuple[Flagged, ...] = ()
    trouble: tuple[tuple[str, str], ...] = ()
    waiting: tuple[int, str] = (0, "")

    @property
    def missing(self) -> int:
        """Replicas without a chiplet."""
        return sum(unplaced.count for unplaced in self.unplaced)


Verdict = tuple[Status, str, str]
Check = Callable[[Standing], Verdict | None]


def _refused(standing: Standing) -> Verdict | None:
    if standing.refusal is None:
        return None
    return Status.FALSE, standing.refusal.reason, standing.refusal.message


def _not_accepted(standing: Standing) -> Verdict | None:
    if standing.refusal is None:
        return None
    message = "not planned while the pool is not accepted; executors that exist are left as they are"
    return Status.UNKNOWN, PoolReason.NOT_ACCEPTED, message


def _deleting(standing: Standing) -> Verdict | None:
    if not standing.deleting:
        return None
    return (
        Status.FALSE,
        PoolReason.DELETING,
        f"{_executors(standing.existing + standing.draining)} still to be drained",
    )


def _mismatch(standing: Standing) -> Verdict | None:
    if not standing.flagged:
        return None
    first = standing.flagged[0]
    return Status.FALSE, PoolReason.DEVICE_MISMATCH, f"{first.name.rpartition('/')[2]}: {first.message}"


def _unplaced(standing: Standing) -> Verdict | None:
    if not standing.missing:
        return None
    reason = PoolReason.PARTLY_PLACED if standing.missing < standing.wanted else PoolReason.NOT_PLACED
    first = standing.unplaced[0]
    message = f"{standing.missing} of {standing.wanted} have no chiplet: {first.message}"
    return Status.FALSE, reason, message


def _scaled_to_zero(standing: Standing) -> Verdict | None:
    if standing.wanted:
        return None
    return Status.TRUE, PoolReason.SCALED_TO_ZERO, "no executor is asked for"


def _nothing_serves(standing: Standing) -> Verdict | None:
    if standing.ready:
        return None
    if standing.deleting:
        return _deleting(standing)
    if not standing.wanted:
        return Status.FALSE, PoolReason.SCALED_TO_ZERO, "no executor is asked for"
    if standing.trouble:
        return Status.FALSE, PoolReason.EXECUTORS_FAILED, _trouble(standing)
    return Status.FALSE, PoolReason.NO_EXECUTOR_READY, f"0 of {standing.wanted} executors serve"


def _failing(standing: Standing) -> Verdict | None:
    if not standing.trouble and not standing.waiting[0]:
        return None
    return Status.FALSE, PoolReason.EXECUTORS_FAILED, _trouble(standing)


def _starting(standing: Standing) -> Verdict | None:
    if standing.ready >= standing.wanted:
        return None
    return (
        Status.FALSE,
        PoolReason.EXECUTORS_STARTING,
        f"{standing.ready} of {standing.wanted} executors serve",
    )


def _updating(standing: Standing) -> Verdict | None:
    if standing.updated >= standing.wanted:
        return None
    message = f"{standing.updated} of {standing.wanted} executors are made from the spec as it is now"
    return Status.FALSE, PoolReason.UPDATING, message


def _draining(standing: Standing) -> Verdict | None:
    if not standing.draining:
        return None
    return Status.TRUE, PoolReason.EXECUTORS_DRAINING, f"{_executors(standing.draining)} still being drained"


_PLACED_CHECKS: Final[tuple[Check, ...]] = (
    _not_accepted,
    _deleting,
    _mismatch,
    _unplaced,
    _scaled_to_zero,
)
_SERVING_CHECKS: Final[tuple[Check, ...]] = (_nothing_serves,)
_READY_CHECKS: Final[tuple[Check, ...]] = (
    _refused,
    _deleting,
    _mismatch,
    _unplaced,
    _failing,
    _starting,
    _updating,
    _draining,
    _scaled_to_zero,
)
_CHAINS: Final = (
    (PoolConditionType.READY, _READY_CHECKS, PoolReason.READY, "every executor serves"),
    (PoolConditionType.ACCEPTED, (_refused,), PoolReason.ACCEPTED, "the pool is valid"),
    (PoolConditionType.PLACED, _PLACED_CHECKS, PoolReason.PLACED, "every executor has a chiplet"),
    (PoolConditionType.SERVING, _SERVING_CHECKS, PoolReason.SERVING, "requests are served"),
)


def pool_conditions(standing: Standing) -> tuple[ConditionStatus, ...]:
    """The four conditions of a pool, Ready first, without times."""
    made = []
    for kind, checks, reason, message in _CHAINS:
        verdicts = (check(standing) for check in checks)
        status, why, words = next(
            (verdict for verdict in verdicts if verdict is not None), (Status.TRUE, reason, message)
        )
        made.append(
            ConditionStatus(
                type=kind.value,
                status=status.value,
                reason=str(why),
                message=_short(words),
                observed_generation=standing.generation,
            )
        )
    return tuple(made)


def stamped(
    conditions: Iterable[ConditionStatus], before: Iterable[Mapping[str, Any]], now: str
) -> list[ConditionStatus]:
    """The conditions with their times: one moves only where the status changed."""
    known = {condition.get("type"): condition for condition in before}
    made = []
    for condition in conditions:
        old = known.get(condition.type, {})
        since = old.get("lastTransitionTime") if old.get("status") == condition.status else None
        made.append(condition.model_copy(update={"last_transition_time": since or now}))
    return made


def _trouble(standing: Standing) -> str:
    lines = [f"{reason}: {message}" if message else reason for reason, message in standing.trouble[:3]]
    count, until = standing.waiting
    if count:
        lines.append(f"{_executors(count)} failed again and again; the next try is not before {until}")
    return " | ".join(lines)


def _executors(count: int) -> str:
    return f"{count} executor" if count == 1 else f"{count} executors"


def _short(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARACTERS else text[: MAX_MESSAGE_CHARACTERS - 1] + "…"
