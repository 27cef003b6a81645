"""Conditions of an SLOContract as ordered chains of pure checks, for the operator and the ingress alike.

Accepted: the contract by itself and beside the others makes sense. ResolvedRefs: what it refers to exists and
may be used. Feasible: its pool could keep it, at least when idle. Ready: their summary; False where one of
them is False, and never Unknown, so that a reader can wait for it. A check that comes first gives the reason.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from superinfer_core.api.v1alpha1.meta import ConditionStatus
from superinfer_core.contract.problems import ContractProblem, ProblemKind
from superinfer_core.contract.resolution import ResolvedContract

MAX_MESSAGE_CHARACTERS: Final = 1024


class ConditionType(StrEnum):
    """What a condition is about, in the order they are shown."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    RESOLVED_REFS = "ResolvedRefs"
    FEASIBLE = "Feasible"


class Status(StrEnum):
    """Of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Reasons beside the kinds of problems."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    RESOLVED = "Resolved"
    FEASIBLE = "Feasible"
    NOT_ACCEPTED = "NotAccepted"
    POOL_UNKNOWN = "PoolUnknown"
    NOT_MEASURED = "NotMeasured"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; `last_transition_time` is RFC 3339 text, "" before it is merged into a status."""

    type: ConditionType
    status: Status
    reason: str
    message: str
    observed_generation: int
    last_transition_time: str = ""

    def as_status(self) -> ConditionStatus:
        """As it is written into an object's status."""
        return ConditionStatus(
            type=self.type.value,
            status=self.status.value,
            reason=self.reason,
            message=self.message,
            observed_generation=self.observed_generation,
            last_transition_time=self.last_transition_time or None,
        )


Verdict = tuple[Status, str, str]
Check = Callable[[ResolvedContract], Verdict | None]

_REFERENCE_KINDS: Final = frozenset(
    {
        ProblemKind.PARENT_NOT_FOUND,
        ProblemKind.POOL_NOT_FOUND,
        ProblemKind.POOL_NOT_ALLOWED,
        ProblemKind.FALLBACK_NOT_FOUND,
        ProblemKind.FALLBACK_MISSING,
        ProblemKind.FALLBACK_CYCLE,
    }
)
_FEASIBILITY_KINDS: Final = frozenset({ProblemKind.TARGETS_UNREACHABLE, ProblemKind.RESOURCES_UNAVAILABLE})
_ACCEPTANCE_KINDS: Final = frozenset(ProblemKind) - _REFERENCE_KINDS - _FEASIBILITY_KINDS | {
    ProblemKind.PARENT_NOT_FOUND
}


def _problems_in(kinds: frozenset[ProblemKind]) -> Check:
    def check(contract: ResolvedContract) -> Verdict | None:
        found = [problem for problem in contract.problems if problem.kind in kinds]
        return (Status.FALSE, found[0].kind.value, _message(found)) if found else None

    return check


def _not_accepted(contract: ResolvedContract) -> Verdict | None:
    if contract.accepted:
        return None
    return Status.UNKNOWN, Reason.NOT_ACCEPTED, "not looked at while the contract is not accepted"


def _pool_unknown(contract: ResolvedContract) -> Verdict | None:
    if contract.pool_known:
        return None
    return Status.UNKNOWN, Reason.POOL_UNKNOWN, "nothing is known of its pool"


def _not_measured(contract: ResolvedContract) -> Verdict | None:
    if contract.pool_measured:
        return None
    return Status.UNKNOWN, Reason.NOT_MEASURED, "its pool has no profile to compare the targets with"


_CHAINS: Final[tuple[tuple[ConditionType, tuple[Check, ...], Reason, str], ...]] = (
    (
        ConditionType.ACCEPTED,
        (_problems_in(_ACCEPTANCE_KINDS),),
        Reason.ACCEPTED,
        "the contract is valid and contradicts no other",
    ),
    (
        ConditionType.RESOLVED_REFS,
        # A missing parent is known; anything else is only looked at once the contract is accepted.
        (_problems_in(_REFERENCE_KINDS), _not_accepted),
        Reason.RESOLVED,
        "everything it refers to exists and may be used",
    ),
    (
        ConditionType.FEASIBLE,
        (_problems_in(_FEASIBILITY_KINDS), _not_accepted, _pool_unknown, _not_measured),
        Reason.FEASIBLE,
        "its pool can keep it",
    ),
)


def contract_conditions(contract: ResolvedContract) -> tuple[Condition, ...]:
    """The four conditions of a contract, Ready first."""
    parts = [
        Condition(kind, *_verdict(contract, checks, reason, message), contract.generation)
        for kind, checks, reason, message in _CHAINS
    ]
    failed = next((part for part in parts if part.status is Status.FALSE), None)
    if failed is None:
        ready = Condition(
            ConditionType.READY,
            Status.TRUE,
            Reason.READY,
            "requests are served under it",
            contract.generation,
        )
    else:
        ready = replace(failed, type=ConditionType.READY)
    return (ready, *parts)


def merge_conditions(
    before: Iterable[Condition], computed: Iterable[Condition], now: str
) -> tuple[Condition, ...]:
    """The computed conditions, stamped: the transition time moves only where the status changed.

    Args:
        before: conditions of the object's status.
        computed: what holds now.
        now: RFC 3339 text.
    """
    known = {condition.type: condition for condition in before}
    merged = []
    for condition in computed:
        old = known.get(condition.type)
        unchanged = old is not None and old.status is condition.status and old.last_transition_time
        since = old.last_transition_time if old is not None and unchanged else now
        merged.append(replace(condition, last_transition_time=since))
    return tuple(merged)


def _verdict(contract: ResolvedContract, checks: tuple[Check, ...], reason: Reason, message: str) -> Verdict:
    for check in checks:
        if (verdict := check(contract)) is not None:
            return verdict
    return Status.TRUE, reason, message


def _message(problems: list[ContractProblem]) -> str:
    lines = [f"{problem.message}; {problem.suggestion}" for problem in problems[:3]]
    if len(problems) > 3:
        lines.append(f"and {len(problems) - 3} more")
    text = " | ".join(lines)
    return text if len(text) <= MAX_MESSAGE_CHARACTERS else text[: MAX_MESSAGE_CHARACTERS - 1] + "…"
