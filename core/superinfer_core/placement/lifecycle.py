"""What becomes of the executors of one pool, before anything new is placed.

Promise: pure. A healthy executor of the current revision is never moved; it ends only when the pool shrinks
or goes. At most one executor at a time is replaced for a new revision, and only while all others serve.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.outcome import Constraint, Ended, EndReason, Flagged
from superinfer_core.placement.snapshot import ExecutorPhase, RunningExecutor


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an executor cannot stay where it is."""

    reason: EndReason
    message: str
    force: bool = False
    at_once: bool = False
    """Nothing is left to save: delete instead of draining."""
    recreate: bool = False
    """Counts as a recreation; its node is avoided."""


@dataclass(frozen=True, slots=True)
class Want:
    """A slot to be filled.

    Attributes:
        slot: which.
        replaces: the executor that goes on until the new one serves, "" none.
        recreations: see RunningExecutor.
        avoid: a node to be used only where there is no other.
    """

    slot: int
    replaces: str = ""
    recreations: int = 0
    avoid: str = ""


@dataclass(slots=True, eq=False)
class Decision:
    """What becomes of a pool's executors.

    Attributes:
        keep: those that stay.
        drain, delete: those that end.
        wants: slots to fill, in order.
        surge: wanted beside an executor that runs; where it finds no place, the old one goes first.
        flagged: kept against a hard constraint.
    """

    keep: list[RunningExecutor] = field(default_factory=list)
    drain: list[Ended] = field(default_factory=list)
    delete: list[Ended] = field(default_factory=list)
    wants: list[Want] = field(default_factory=list)
    surge: Want | None = None
    flagged: list[Flagged] = field(default_factory=list)

    def end(self, executor: RunningExecutor, trouble: Trouble) -> None:
        """End an executor."""
        ended = Ended(executor.name, executor.pool, trouble.reason, trouble.message, trouble.force)
        never_ran = executor.phase in (ExecutorPhase.PENDING, ExecutorPhase.FAILED)
        (self.delete if trouble.at_once or trouble.force or never_ran else self.drain).append(ended)


_RANK = {
    ExecutorPhase.READY: 0,
    ExecutorPhase.NOT_READY: 1,
    ExecutorPhase.PENDING: 2,
    ExecutorPhase.FAILED: 3,
}
"""How much a pool would rather keep it: less is better."""

Judge = Callable[[RunningExecutor], Trouble | Flagged | None]
"""What is wrong with an executor: it has to go, it is kept though a constraint is broken, or nothing."""

ShrinkOrder = Callable[[RunningExecutor], tuple[int, ...]]
"""Which executor a shrinking pool gives up: the greatest first."""


def end_all(executors: Sequence[RunningExecutor], message: str) -> Decision:
    """Executors of a pool that is gone."""
    decision = Decision()
    for executor in executors:
        if not executor.terminating:
            decision.end(executor, Trouble(EndReason.POOL_GONE, message))
    return decision


def decide(
    pool: PoolDemand, executors: Sequence[RunningExecutor], judge: Judge, shrink: ShrinkOrder
) -> Decision:
    """What becomes of the executors of a pool.

    Args:
        pool: what is wanted.
        executors: all it has, terminating ones too, in order of (slot, incarnation).
        judge: what is wrong with one.
        shrink: which goes first where there are too many.
    """
    decision = Decision()
    lost: dict[int, Want] = {}
    alive: dict[int, list[RunningExecutor]] = {}
    for executor in executors:
        if executor.terminating:
            continue
        verdict = judge(executor)
        if isinstance(verdict, Trouble):
            decision.end(executor, verdict)
            again = executor.recreations + (1 if verdict.recreate else 0)
            lost[executor.slot] = Want(executor.slot, "", again, executor.node if verdict.recreate else "")
            continue
        if verdict is not None:
            decision.flagged.append(verdict)
        alive.setdefault(executor.slot, []).append(executor)
    slots = {slot: _one_of(pool, held, decision) for slot, held in sorted(alive.items())}
    _shrink(pool, slots, decision, shrink)
    _unstarted(pool, slots, decision, lost)
    _grow(pool, slots, decision, lost)
    _roll(pool, executors, slots, decision)
    decision.keep = [executor for held in slots.values() for executor in held]
    return decision


def _one_of(pool: PoolDemand, held: list[RunningExecutor], decision: Decision) -> list[RunningExecutor]:
    """A slot has one executor, or one and the newest, which is to take over once it serves."""
    if len(held) == 1:
        return held
    newest = max(held, key=lambda one: (one.revision == pool.revision, one.incarnation))
    others = sorted((one for one in held if one is not newest), key=_worth)
    if newest.phase is not ExecutorPhase.READY:
        for executor in others[1:]:
            decision.end(executor, Trouble(EndReason.DUPLICATE, f"{others[0].name} fills its slot"))
        return [others[0], newest]
    for executor in others:
        old = executor.revision != pool.revision
        reason = EndReason.REVISION_REPLACED if old else EndReason.REPACKED
        decision.end(executor, Trouble(reason, f"{newest.name} has taken over and serves"))
    return [newest]


def _worth(executor: RunningExecutor) -> tuple[int, int]:
    return (_RANK[executor.phase], executor.incarnation)


def _shrink(
    pool: PoolDemand,
    slots: dict[int, list[RunningExecutor]],
    decision: Decision,
    shrink: ShrinkOrder,
) -> None:
    surplus = len(slots) - pool.replicas
    if surplus <= 0:
        return

    def order(slot: int) -> tuple[int, tuple[int, ...], int]:
        held = slots[slot]
        least = held[0] if len(held) == 1 else min(held, key=_worth)
        return (_RANK[least.phase], shrink(least), slot)

    for slot in sorted(slots, key=order, reverse=True)[:surplus]:
        for executor in slots.pop(slot):
            decision.end(
                executor, Trouble(EndReason.SCALED_DOWN, f"the pool wants {pool.replicas} executors")
            )


def _unstarted(
    pool: PoolDemand,
    slots: dict[int, list[RunningExecutor]],
    decision: Decision,
    lost: dict[int, Want],
) -> None:
    """Executors of an old revision that never served have nothing to wait for."""
    for slot, held in list(slots.items()):
        if len(held) == 1 and held[0].revision == pool.revision:
            continue
        kept = []
        for executor in held:
            if executor.revision != pool.revision and executor.phase is ExecutorPhase.PENDING:
                decision.end(
                    executor, Trouble(EndReason.REVISION_REPLACED, "it never served and is out of date")
                )
                lost.setdefault(slot, Want(slot))
            else:
                kept.append(executor)
        if kept:
            slots[slot] = kept
        else:
            del slots[slot]


def _grow(
    pool: PoolDemand,
    slots: dict[int, list[RunningExecutor]],
    decision: Decision,
    lost: dict[int, Want],
) -> None:
    missing = pool.replicas - len(slots)
    if missing <= 0:
        return
    again = [lost[slot] for slot in sorted(lost) if slot not in slots][:missing]
    decision.wants.extend(again)
    taken = set(slots) | {want.slot for want in again}
    slot = 0
    while len(decision.wants) < missing:
        if slot not in taken:
            decision.wants.append(Want(slot))
        slot += 1


def _roll(
    pool: PoolDemand,
    executors: Sequence[RunningExecutor],
    slots: dict[int, list[RunningExecutor]],
    decision: Decision,
) -> None:
    """Replace one executor of an old revision, if nothing else is under way.

    Slots that wait for room are no reason to wait: there may never be any.
    """
    outdated = [held[0] for held in slots.values() if held[0].revision != pool.revision]
    if not outdated or any(executor.terminating for executor in executors):
        return
    if decision.drain or decision.delete or any(len(held) > 1 for held in slots.values()):
        return
    current = [held[0] for held in slots.values() if held[0].revision == pool.revision]
    if any(executor.phase is not ExecutorPhase.READY for executor in current):
        return
    # What does not serve loses nothing by going first.
    first = min(outdated, key=lambda executor: (executor.phase is ExecutorPhase.READY, executor.slot))
    decision.surge = Want(first.slot, replaces=first.name)


def mismatch_verdict(executor: RunningExecutor, broken: str, max_recreations: int) -> Trouble | Flagged:
    """The kubelet gave an executor devices that break a hard constraint."""
    message = f"the kubelet chose {', '.join(executor.devices or ())}: {broken}"
    if executor.recreations < max_recreations:
        return Trouble(EndReason.DEVICE_MISMATCH, message, recreate=True)
    return Flagged(
        executor.name,
        executor.pool,
        Constraint.DEVICE_MISMATCH,
        f"{message}; kept after {executor.recreations} recreations",
    )
