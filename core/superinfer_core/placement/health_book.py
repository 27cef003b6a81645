"""What is wrong with the devices of one node at the moment, and when it may be trusted again.

Promise: pure. Events and readings go in, each with its time in seconds; out comes a new book. A fault
stands until a sign shows that it is over (for one an application restart cures: that it did not come again)
and then for a hold that doubles with every return, so that a flapping device settles in the end. What the
driver recommends counts as it stands; it has the last word where an Xid called for a reset and the driver
asks for none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from superinfer_core.doubling import doubled
from superinfer_core.placement.health import (
    NO_HARM,
    DeviceEvent,
    EventKind,
    FaultLevel,
    Healing,
    Verdict,
    judge,
    judge_action,
    judge_xid,
    severity,
)
from superinfer_core.placement.node import HealthState, RecoveryAction

Target = tuple[str, int | None]
"""A GPU's UUID, and the GPU instance where only that is hit."""


@dataclass(frozen=True, slots=True)
class Damping:
    """How long a device is held back after a fault is over.

    Attributes:
        hold_s: the first time.
        longest_hold_s: at most, however often it came back.
        forget_s: good conduct after which the first hold applies again.
        doubt_s: how long an Xid that calls for a reset is believed while the driver asks for none.
    """

    hold_s: float = 30.0
    longest_hold_s: float = 1800.0
    forget_s: float = 7200.0
    doubt_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Signs:
    """What a GPU shows when it is asked.

    Attributes:
        gpu_uuid: which.
        lost: it does not answer.
        action: what the driver recommends; None where the driver cannot say.
        rows_pending, rows_failed: memory rows wait for a reset to be replaced, or could not be.
    """

    gpu_uuid: str
    lost: bool = False
    action: RecoveryAction | None = None
    rows_pending: bool = False
    rows_failed: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        gpu_uuid: who reported it.
        gi_id: the MIG instance, where only that is hit.
        verdict: how bad, for whom.
        xid: the Xid behind it.
        action: the recovery the driver recommends, where that is the fault.
        standing: it was read, not told: it is there as long as it is read.
        since_s, last_s: first and last seen.
        asked_reset: the driver has asked for a recovery since.
        over_s: when a sign showed that it is over; None while it stands.
    """

    gpu_uuid: str
    gi_id: int | None
    verdict: Verdict
    xid: int | None
    action: RecoveryAction
    standing: bool
    since_s: float
    last_s: float
    asked_reset: bool = False
    over_s: float | None = None

    @property
    def target(self) -> Target:
        """What a return of it would hit."""
        return self.gpu_uuid, self.gi_id


@dataclass(frozen=True, slots=True)
class DeviceCondition:
    """How a GPU or instance is, with the worst fault's reason."""

    state: HealthState = HealthState.HEALTHY
    reason: str = ""
    xid: int | None = None
    action: RecoveryAction = RecoveryAction.NONE
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class HealthBook:
    """Everything that is wrong, and how often what was wrong lately."""

    faults: tuple[Fault, ...] = ()
    returns: tuple[tuple[Target, int, float], ...] = ()
    """Target, how often it failed, and when it last did or was healed."""


def note_event(book: HealthBook, event: DeviceEvent, now_s: float) -> HealthBook:
    """Take in something a GPU reported."""
    if event.kind is EventKind.RECOVERY_ACTION and event.action is RecoveryAction.NONE:
        return replace(book, faults=tuple(_over(fault, event.gpu_uuid, now_s) for fault in book.faults))
    verdict = judge(event)
    if verdict == NO_HARM:
        return book
    gi_id = event.gi_id if verdict.level is FaultLevel.INSTANCE else None
    told = Fault(
        event.gpu_uuid, gi_id, verdict, event.xid, event.action, standing=False, since_s=now_s, last_s=now_s
    )
    return _add(book, told, now_s)


def note_signs(book: HealthBook, signs: Iterable[Signs], now_s: float, damping: Damping) -> HealthBook:
    """Take in what all GPUs show now, and let go of what is over for long enough."""
    for sign in signs:
        seen = _read(sign, now_s)
        reasons = {fault.verdict.reason for fault in seen}
        book = replace(
            book, faults=tuple(_follow(fault, sign, reasons, now_s, damping) for fault in book.faults)
        )
        for fault in seen:
            book = _add(book, fault, now_s)
    return _settle(book, now_s, damping)


def condition_of(
    book: HealthBook, gpu_uuid: str, gi_id: int | None, groups: Mapping[str, str], *, mig: bool = False
) -> DeviceCondition:
    """How a GPU is, or one MIG instance of it.

    Args:
        book: what is wrong on the node.
        gpu_uuid: the GPU.
        gi_id: the instance; None for the GPU itself.
        groups: which GPUs are linked to each other: UUID to the name of the group.
        mig: the GPU is cut into instances, which no NVLink reaches.
    """
    worst = DeviceCondition()
    for fault in book.faults:
        state = _effect(fault, gpu_uuid, gi_id, groups, linked=gi_id is None and not mig)
        if severity(state) > severity(worst.state):
            worst = DeviceCondition(state, fault.verdict.reason, fault.xid, fault.action, fault.since_s)
    return worst


def _effect(
    fault: Fault, gpu_uuid: str, gi_id: int | None, groups: Mapping[str, str], *, linked: bool
) -> HealthState:
    own = fault.gpu_uuid == gpu_uuid
    match fault.verdict.level:
        case FaultLevel.NODE:
            return fault.verdict.state
        case FaultLevel.INSTANCE:
            return fault.verdict.state if own and gi_id == fault.gi_id else HealthState.HEALTHY
        case FaultLevel.GPU:
            return fault.verdict.state if own else HealthState.HEALTHY
        case FaultLevel.CLIQUE:
            if not linked or (not own and groups.get(gpu_uuid) != groups.get(fault.gpu_uuid, "")):
                return HealthState.HEALTHY
            # Others of the clique keep what runs on them; nothing new relies on their links.
            return fault.verdict.state if own else HealthState.DEGRADED


def _read(sign: Signs, now_s: float) -> Sequence[Fault]:
    """Faults that can be read off a GPU."""
    found: list[tuple[Verdict, int | None, RecoveryAction]] = []
    if sign.lost:
        found.append((judge_xid(79, None), None, RecoveryAction.NONE))
    if sign.action is not None and judge_action(sign.action) != NO_HARM:
        found.append((judge_action(sign.action), None, sign.action))
    if sign.rows_failed:
        found.append((judge_xid(64, None), None, RecoveryAction.NONE))
    elif sign.rows_pending:
        found.append((judge_xid(63, None), None, RecoveryAction.NONE))
    return [
        Fault(sign.gpu_uuid, None, verdict, xid, action, standing=True, since_s=now_s, last_s=now_s)
        for verdict, xid, action in found
    ]


def _over(fault: Fault, gpu_uuid: str, now_s: float) -> Fault:
    if fault.gpu_uuid != gpu_uuid or fault.over_s is not None:
        return fault
    return replace(fault, over_s=now_s)


def _follow(fault: Fault, sign: Signs, reasons: set[str], now_s: float, damping: Damping) -> Fault:
    """What a look at its GPU says about a known fault."""
    if fault.gpu_uuid != sign.gpu_uuid or fault.over_s is not None:
        return fault
    if fault.standing:
        return fault if fault.verdict.reason in reasons else replace(fault, over_s=now_s)
    if _heals_by_time(fault) or sign.action is None:
        return fault
    if sign.action is not RecoveryAction.NONE or sign.lost:
        return replace(fault, asked_reset=True)
    if fault.asked_reset or now_s - fault.last_s >= damping.doubt_s:
        return replace(fault, over_s=now_s)
    return fault


def _add(book: HealthBook, fault: Fault, now_s: float) -> HealthBook:
    """Add or refresh a fault; one more failure of its target only if that was well, or about to be."""
    if all(known.over_s is not None for known in book.faults if known.target == fault.target):
        book = _count(book, fault.target, now_s)
    faults = list(book.faults)
    for at, known in enumerate(faults):
        same = (known.target, known.verdict, known.standing) == (fault.target, fault.verdict, fault.standing)
        if same:
            xid = known.xid if fault.xid is None else fault.xid
            faults[at] = replace(known, last_s=now_s, xid=xid, action=fault.action, over_s=None)
            return replace(book, faults=tuple(faults))
    return replace(book, faults=(*faults, fault))


def _count(book: HealthBook, target: Target, now_s: float) -> HealthBook:
    before = next((times for known, times, _ in book.returns if known == target), 0)
    others = tuple(entry for entry in book.returns if entry[0] != target)
    return replace(book, returns=(*others, (target, before + 1, now_s)))


def _settle(book: HealthBook, now_s: float, damping: Damping) -> HealthBook:
    kept = tuple(
        fault
        for fault in book.faults
        if (fault.over_s is None and not _heals_by_time(fault))
        or now_s < _over_at(fault) + _hold_s(book, fault, damping)
    )
    targets = {fault.target for fault in kept}
    healed = {fault.target for fault in book.faults} - targets
    returns = tuple(
        (target, times, now_s if target in healed else at_s)
        for target, times, at_s in book.returns
        if target in targets or target in healed or now_s - at_s < damping.forget_s
    )
    return HealthBook(kept, returns)


def _heals_by_time(fault: Fault) -> bool:
    return fault.verdict.healing is Healing.QUIET and not fault.standing


def _over_at(fault: Fault) -> float:
    return fault.last_s if fault.over_s is None else max(fault.over_s, fault.last_s)


def _hold_s(book: HealthBook, fault: Fault, damping: Damping) -> float:
    times = next((times for target, times, _ in book.returns if target == fault.target), 1)
    return doubled(damping.hold_s, times, damping.longest_hold_s)
