"""What a device error means: how bad, for which fault domain, and what shows that it is over.

Promise: pure and total; the same event always gets the same verdict, and an Xid nobody knows is taken as
serious. The order of domains is instance < GPU < clique < node: an error without a MIG instance belongs to
the whole GPU, and what the driver recommends (its recovery action) beats what an Xid suggests, because a
reset or a reboot takes everything in its domain with it. Meanings of Xid numbers are NVIDIA's public ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from superinfer_core.placement.node import HealthState, RecoveryAction


class FaultLevel(StrEnum):
    """What one error takes with it."""

    INSTANCE = "Instance"
    GPU = "GPU"
    CLIQUE = "Clique"
    NODE = "Node"


class Healing(StrEnum):
    """What shows that a fault is over."""

    QUIET = "Quiet"
    """No repetition for a while: only the application had to restart."""
    RESET = "Reset"
    """A sign that the device was reset; time alone heals nothing."""


class EventKind(StrEnum):
    """The device events health follows."""

    XID = "Xid"
    DOUBLE_BIT_ECC = "DoubleBitEcc"
    SINGLE_BIT_ECC = "SingleBitEcc"
    RECOVERY_ACTION = "RecoveryAction"
    LOST = "Lost"


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """Something a GPU reported; `gi_id` only where it can be told which MIG instance it was."""

    kind: EventKind
    gpu_uuid: str
    gi_id: int | None = None
    xid: int | None = None
    action: RecoveryAction = RecoveryAction.NONE


@dataclass(frozen=True, slots=True)
class Verdict:
    """How bad an event is, what it takes with it, and what ends it."""

    state: HealthState
    level: FaultLevel
    healing: Healing
    reason: str


NO_HARM: Final = Verdict(HealthState.HEALTHY, FaultLevel.INSTANCE, Healing.QUIET, "")

APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""The program on the GPU was at fault; the device is fine."""

_BAD: Final = HealthState.UNHEALTHY
_WORSE: Final = HealthState.DEGRADED

_XIDS: Final[Mapping[int, Verdict]] = MappingProxyType(
    {
        46: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "GPUStoppedProcessing"),
        48: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "DoubleBitECC"),
        63: Verdict(_WORSE, FaultLevel.GPU, Healing.RESET, "RowRemapPending"),
        64: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "RowRemapFailed"),
        74: Verdict(_BAD, FaultLevel.CLIQUE, Healing.RESET, "NVLinkError"),
        79: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "FallenOffTheBus"),
        92: Verdict(_WORSE, FaultLevel.GPU, Healing.QUIET, "ManySingleBitECC"),
        94: Verdict(_BAD, FaultLevel.INSTANCE, Healing.QUIET, "ContainedECC"),
        95: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "UncontainedECC"),
        119: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "GSPTimeout"),
        120: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "GSPError"),
    }
)

_ACTIONS: Final[Mapping[RecoveryAction, Verdict]] = MappingProxyType(
    {
        RecoveryAction.NONE: NO_HARM,
        RecoveryAction.GPU_RESET: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "GPUResetNeeded"),
        RecoveryAction.BUS_RESET: Verdict(_BAD, FaultLevel.GPU, Healing.RESET, "BusResetNeeded"),
        RecoveryAction.DRAIN_AND_RESET: Verdict(_WORSE, FaultLevel.GPU, Healing.RESET, "DrainAndResetNeeded"),
        RecoveryAction.DRAIN_P2P: Verdict(_WORSE, FaultLevel.CLIQUE, Healing.RESET, "DrainP2PNeeded"),
        RecoveryAction.RECOVER_IMEX_DOMAIN: Verdict(
            _BAD, FaultLevel.CLIQUE, Healing.RESET, "IMEXRecoveryNeeded"
        ),
        RecoveryAction.NODE_REBOOT: Verdict(_BAD, FaultLevel.NODE, Healing.RESET, "NodeRebootNeeded"),
        RecoveryAction.SYSTEM_REBOOT: Verdict(_BAD, FaultLevel.NODE, Healing.RESET, "SystemRebootNeeded"),
    }
)


def judge_xid(xid: int, gi_id: int | None) -> Verdict:
    """What an Xid means; one pinned to a MIG instance reaches past it only where that is known."""
    if xid in APPLICATION_XIDS:
        return NO_HARM
    known = _XIDS.get(xid)
    if known is None:
        level = FaultLevel.GPU if gi_id is None else FaultLevel.INSTANCE
        return Verdict(_BAD, level, Healing.RESET if gi_id is None else Healing.QUIET, f"Xid{xid}")
    if known.level is FaultLevel.INSTANCE and gi_id is None:
        return Verdict(known.state, FaultLevel.GPU, known.healing, known.reason)
    return known


def judge_action(action: RecoveryAction) -> Verdict:
    """What a recovery action means while it stands."""
    return _ACTIONS[action]


def judge(event: DeviceEvent) -> Verdict:
    """What an event means for the device that reported it."""
    match event.kind:
        case EventKind.XID:
            return judge_xid(event.xid or 0, event.gi_id)
        case EventKind.DOUBLE_BIT_ECC:
            return _XIDS[94] if event.gi_id is not None else _XIDS[48]
        case EventKind.SINGLE_BIT_ECC:
            return NO_HARM
        case EventKind.RECOVERY_ACTION:
            return judge_action(event.action)
        case EventKind.LOST:
            return _XIDS[79]


_SEVERITY: Final = (HealthState.HEALTHY, HealthState.DEGRADED, HealthState.UNKNOWN, HealthState.UNHEALTHY)


def severity(state: HealthState) -> int:
    """Order of states; larger is worse."""
    return _SEVERITY.index(state)
