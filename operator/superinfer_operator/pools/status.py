"""The status of a pool from its plan and its pods. Pure; bounded by what the API server takes."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.conditions import dated, read_conditions
from superinfer_core.api.v1alpha1.pool_status import (
    MAX_ADVICE,
    MAX_CHIPLETS,
    MAX_UNPLACED,
    MAX_UNPLACED_NODES,
    ChipletPoolStatus,
    ChipletState,
    ChipletStatus,
    MigConfigAdvice,
    NodeRefusal,
    UnplacedStatus,
)
from superinfer_core.placement import Assignment, ExecutorPhase, Flagged, Kept, Unplaced
from superinfer_core.placement.outcome import LayoutAdvice
from superinfer_core.pools.conditions import pool_conditions
from superinfer_core.pools.replicas import replicas_of
from superinfer_core.pools.standing import Standing
from superinfer_operator.placing.parts import PlanPart
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.pools.capacity import memory_status, shape_statuses, shapes_message
from superinfer_operator.watching.pods import ExecutorPod

_MAX_MESSAGE: Final = 1024
_MAX_PROFILES: Final = 16
_STATES: Final = {
    ExecutorPhase.PENDING: ChipletState.PENDING,
    ExecutorPhase.READY: ChipletState.READY,
    ExecutorPhase.NOT_READY: ChipletState.STARTING,
    ExecutorPhase.FAILED: ChipletState.FAILED,
}


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """What the plan says of one pool.

    Attributes:
        unplaced, flagged, kept, advice: its part of the plan.
        refused: (reason, message) of the API server for pods it would not take.
        waiting: (count, until) of replicas whose replacement has to wait; until when is RFC 3339.
    """

    unplaced: tuple[Unplaced, ...] = ()
    flagged: tuple[Flagged, ...] = ()
    kept: tuple[Kept, ...] = ()
    waiting: tuple[int, str] = (0, "")
    advice: tuple[LayoutAdvice, ...] = ()
    refused: tuple[str, str] = ("", "")


NO_OUTCOME: Final = PoolOutcome()


def outcome_of(part: PlanPart, waiting: tuple[int, str] = (0, "")) -> PoolOutcome:
    """What a pool's part of a plan comes to."""
    return PoolOutcome(
        unplaced=tuple(part.unplaced),
        flagged=tuple(part.flagged),
        kept=tuple(part.keep),
        waiting=waiting,
        advice=tuple(part.advice),
    )


def pool_status(
    setup: PoolSetup,
    pods: Sequence[ExecutorPod],
    outcome: PoolOutcome,
    *,
    before: Mapping[str, Any],
    now: str,
) -> dict[str, Any]:
    """The whole status, as it is written.

    Args:
        setup: the pool.
        pods: its executors.
        outcome: what the plan says of it.
        before: the status it takes the place of.
        now: RFC 3339.
    """
    record, pool = setup.record, setup.record.pool
    standing = standing_of(setup, pods, outcome)
    held = {kept.name: kept.assignment for kept in outcome.kept}
    conditions = dated(pool_conditions(standing), read_conditions(before), now)
    status = ChipletPoolStatus(
        conditions=[condition.as_status() for condition in conditions],
        observed_generation=record.generation,
        replicas=standing.existing,
        ready_replicas=standing.ready,
        placed_replicas=max(0, standing.wanted - standing.missing) if setup.demand is not None else None,
        unplaced_replicas=standing.missing,
        updated_replicas=standing.updated,
        selector=labels.executor_selector(record.name),
        engine_type=pool.spec.engine.type if pool is not None else None,
        chiplets=[_chiplet(pod, held.get(pod.key)) for pod in pods[:MAX_CHIPLETS]] or None,
        unplaced=_unplaced(outcome.unplaced, _free_slots(standing.wanted, pods)) or None,
        mig_config_advice=_advice(outcome.advice) or None,
        memory=memory_status(setup),
        shapes=shape_statuses(setup) or None,
        shapes_message=shapes_message(setup),
    )
    document: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


def standing_of(setup: PoolSetup, pods: Sequence[ExecutorPod], outcome: PoolOutcome) -> Standing:
    """How a pool stands."""
    staying = [pod for pod in pods if not pod.terminating]
    pool = setup.record.pool
    replicas = replicas_of(pool.spec) if pool is not None and not setup.record.deleting else None
    return Standing(
        generation=setup.record.generation,
        refusal=setup.refusal,
        deleting=setup.record.deleting,
        wanted=replicas.wanted if replicas is not None else 0,
        existing=len(staying),
        ready=sum(pod.phase is ExecutorPhase.READY for pod in staying),
        updated=sum(pod.revision == setup.revision for pod in staying),
        draining=sum(pod.terminating for pod in pods),
        unplaced=outcome.unplaced,
        flagged=outcome.flagged,
        trouble=(*((outcome.refused,) if outcome.refused[0] else ()), *_troubles(staying)),
        waiting=outcome.waiting,
        replicas=replicas,
    )


def same_status(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether writing it would change nothing but times."""
    return _timeless(stored) == _timeless(wanted)


def _timeless(status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = [
        {name: value for name, value in condition.items() if name != "lastTransitionTime"}
        for condition in status.get("conditions") or ()
    ]
    return {**status, "conditions": sorted(conditions, key=lambda condition: str(condition.get("type")))}


def _troubles(pods: Iterable[ExecutorPod]) -> Iterable[tuple[str, str]]:
    for pod in pods:
        if pod.reason and pod.phase is not ExecutorPhase.READY:
            yield pod.reason, f"{pod.name}: {pod.message}"[:_MAX_MESSAGE]


def _chiplet(pod: ExecutorPod, held: Assignment | None) -> ChipletStatus:
    """As the plan finds it, which knows what the kubelet gave; as it was planned where it says nothing."""
    chiplet = pod.chiplet
    devices = held.chiplet.devices if held is not None else tuple(chiplet.get("devices") or ())
    domains = held.fault_domain if held is not None else tuple(chiplet.get("faultDomain") or ())
    state = _STATES[pod.phase]
    if pod.terminating:
        state = ChipletState.DRAINING
    elif state is ChipletState.PENDING and pod.scheduled:
        state = ChipletState.STARTING
    return ChipletStatus(
        executor=pod.name,
        node=pod.node or None,
        resource=str(chiplet.get("resource") or "") or None,
        device_ids=[str(device) for device in devices][:72] or None,
        # Told the smallest first; planned the outermost first.
        fault_domain=[str(domain) for domain in reversed(domains)][:8] or None,
        state=state,
    )


def _free_slots(wanted: int, pods: Iterable[ExecutorPod]) -> Iterator[int]:
    taken = {pod.slot for pod in pods if not pod.terminating}
    return (slot for slot in range(wanted) if slot not in taken)


def _unplaced(unplaced: Iterable[Unplaced], free: Iterator[int]) -> list[UnplacedStatus]:
    listed: list[UnplacedStatus] = []
    for group in unplaced:
        nodes = [
            NodeRefusal(
                node=node, constraint=refusal.constraint.value, message=refusal.message[:_MAX_MESSAGE]
            )
            for refusal in group.refusals
            for node in refusal.nodes
        ]
        for slot in itertools.islice(free, min(group.count, MAX_UNPLACED - len(listed))):
            listed.append(
                UnplacedStatus(
                    slot=slot,
                    reason=group.reason.value,
                    message=group.message[:_MAX_MESSAGE],
                    nodes=nodes[:MAX_UNPLACED_NODES] or None,
                )
            )
            # The nodes are the same for every replica of a group: once is enough.
            nodes = []
    return listed


def _advice(advice: Iterable[LayoutAdvice]) -> list[MigConfigAdvice]:
    return [
        MigConfigAdvice(
            node=one.node,
            device=one.device,
            profiles=list(one.profiles)[:_MAX_PROFILES] or None,
            config=one.config,
            message=one.message[:_MAX_MESSAGE],
        )
        for one in advice
    ][:MAX_ADVICE]
