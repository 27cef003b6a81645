"""Faults made and mended: edits of a description, each with the events a driver would report for it.

Promise: pure; the description given is not changed, event numbers grow, old events are dropped past the
limit.
"""

from dataclasses import dataclass
from typing import Final

from superinfer_core.placement.health import FaultLevel, Healing, judge_xid
from superinfer_core.placement.node import RecoveryAction
from superinfer_gpumock.description import (
    MAX_EVENTS,
    Description,
    DescriptionInvalid,
    EccCounts,
    Event,
    EventType,
    Fault,
    Gpu,
)

ACTION_CODES: Final = {
    RecoveryAction.NONE: 0,
    RecoveryAction.GPU_RESET: 1,
    RecoveryAction.NODE_REBOOT: 2,
    RecoveryAction.DRAIN_P2P: 3,
    RecoveryAction.DRAIN_AND_RESET: 4,
    RecoveryAction.RECOVER_IMEX_DOMAIN: 5,
    RecoveryAction.BUS_RESET: 6,
    RecoveryAction.SYSTEM_REBOOT: 7,
}
"""NVML's numbers of recovery actions."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What goes wrong: an Xid, a recommended recovery, a GPU off the bus; any of them together.

    Without `action` an Xid that only a reset heals brings GPUReset with it, as drivers do.
    """

    gpu: int
    gi_id: int | None = None
    xid: int | None = None
    action: RecoveryAction | None = None
    lost: bool = False


def fail(description: Description, failure: Failure) -> Description:
    """The node after the failure; raises DescriptionInvalid where there is no such GPU or nothing fails."""
    gpu = _gpu(description, failure.gpu)
    if failure.xid is None and failure.action is None and not failure.lost:
        raise DescriptionInvalid("nothing to fail: give an Xid, a recovery action or lost")
    events: list[tuple[EventType, int, int | None]] = []
    faults = list(description.faults)
    action = failure.action
    ecc = gpu.ecc
    if failure.xid is not None:
        verdict = judge_xid(failure.xid, failure.gi_id)
        events.append((EventType.XID, failure.xid, failure.gi_id))
        faults.append(Fault(gpu=failure.gpu, gi_id=failure.gi_id, xid=failure.xid))
        if action is None and verdict.healing is Healing.RESET and verdict.level is FaultLevel.GPU:
            action = RecoveryAction.GPU_RESET
        if failure.xid in (48, 94, 95):
            ecc = EccCounts(corrected=ecc.corrected, uncorrected=ecc.uncorrected + 1)
            events.append((EventType.DOUBLE_BIT_ECC, 0, failure.gi_id))
    if action is not None:
        events.append((EventType.RECOVERY_ACTION, ACTION_CODES[action], None))
    changed = gpu.model_copy(
        update={
            "lost": gpu.lost or failure.lost,
            "recovery_action": action or gpu.recovery_action,
            "ecc": ecc,
        }
    )
    return _with(description, failure.gpu, changed, faults, events)


def recover(description: Description, gpu_index: int, gi_id: int | None = None) -> Description:
    """The node after a GPU was reset, or after the program on one MIG instance was restarted."""
    gpu = _gpu(description, gpu_index)
    faults = [
        fault
        for fault in description.faults
        if fault.gpu != gpu_index or (gi_id is not None and fault.gi_id != gi_id)
    ]
    if gi_id is not None:
        return _with(description, gpu_index, gpu, faults, [])
    changed = gpu.model_copy(update={"lost": False, "recovery_action": RecoveryAction.NONE})
    return _with(description, gpu_index, changed, faults, [(EventType.RECOVERY_ACTION, 0, None)])


def _gpu(description: Description, index: int) -> Gpu:
    if not 0 <= index < len(description.gpus):
        raise DescriptionInvalid(f"gpu: {index} is not one of 0 to {len(description.gpus) - 1}")
    return description.gpus[index]


def _with(
    description: Description,
    index: int,
    gpu: Gpu,
    faults: list[Fault],
    happened: list[tuple[EventType, int, int | None]],
) -> Description:
    gpus = list(description.gpus)
    gpus[index] = gpu
    following = description.events[-1].sequence + 1 if description.events else 1
    events = list(description.events) + [
        Event(sequence=following + at, gpu=index, gi_id=gi_id, type=kind, data=data)
        for at, (kind, data, gi_id) in enumerate(happened)
    ]
    return description.model_copy(
        update={
            "gpus": tuple(gpus),
            "faults": tuple(faults[-MAX_EVENTS:]),
            "events": tuple(events[-MAX_EVENTS:]),
        }
    )
