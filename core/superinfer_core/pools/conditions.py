"""Conditions of a pool as ordered chains of pure checks; the first that applies gives the reason."""

from collections.abc import Callable
from typing import Final

from superinfer_core.api.v1alpha1.conditions import Condition, Status, Verdict, condition_of
from superinfer_core.api.v1alpha1.pool_status import PoolConditionType, PoolReason
from superinfer_core.pools.replicas import Limit
from superinfer_core.pools.standing import Standing

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
_LIMITED_BY: Final = {Limit.FEWEST: PoolReason.TOO_FEW_REPLICAS, Limit.MOST: PoolReason.TOO_MANY_REPLICAS}


def pool_conditions(standing: Standing) -> tuple[Condition, ...]:
    """The conditions of a pool, Ready first, without times; ScalingLimited only where it has bounds."""
    chains: list[tuple[PoolConditionType, tuple[Check, ...], Verdict]] = [
        (kind, checks, (Status.TRUE, reason, message)) for kind, checks, reason, message in _CHAINS
    ]
    if (limited := _scaling_limited(standing)) is not None:
        chains.append((PoolConditionType.SCALING_LIMITED, (), limited))
    return tuple(
        condition_of(kind, standing, checks, otherwise=verdict, generation=standing.generation)
        for kind, checks, verdict in chains
    )


def _scaling_limited(standing: Standing) -> Verdict | None:
    replicas = standing.replicas
    if replicas is None or replicas.bounds is None:
        return None
    if replicas.limit is None:
        fewest, most = replicas.bounds
        message = f"replicas {replicas.asked} is within minReplicas {fewest} and maxReplicas {most}"
        return Status.FALSE, PoolReason.WITHIN_BOUNDS, message
    message = (
        f"replicas {replicas.asked} is asked for, autoscaling.{replicas.limit} allows {replicas.wanted}: "
        f"the pool has {_executors(replicas.wanted)}; change either"
    )
    return Status.TRUE, _LIMITED_BY[replicas.limit], message


def _trouble(standing: Standing) -> str:
    lines = [f"{reason}: {message}" if message else reason for reason, message in standing.trouble[:3]]
    count, until = standing.waiting
    if count:
        lines.append(f"{_executors(count)} failed again and again; the next try is not before {until}")
    return " | ".join(lines)


def _executors(count: int) -> str:
    return f"{count} executor" if count == 1 else f"{count} executors"
