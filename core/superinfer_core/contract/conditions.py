"""Conditions of an SLOContract as ordered chains of pure checks, for the operator and the ingress alike.

Accepted: the contract by itself and beside the others makes sense. ResolvedRefs: what it refers to exists and
may be used. Feasible: its pool could keep it, at least when idle. Ready: their summary; False where one of
them is False, and never Unknown, so that a reader can wait for it. A check that comes first gives the reason.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Final

from superinfer_core.api.v1alpha1.conditions import Condition, Status, Verdict, condition_of
from superinfer_core.contract.problems import ContractProblem, ProblemKind
from superinfer_core.contract.resolution import ResolvedContract


class ConditionType(StrEnum):
    """What a condition is about, in the order they are shown."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    RESOLVED_REFS = "ResolvedRefs"
    FEASIBLE = "Feasible"


class Reason(StrEnum):
    """Reasons beside the kinds of problems."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    RESOLVED = "Resolved"
    FEASIBLE = "Feasible"
    NOT_ACCEPTED = "NotAccepted"
    POOL_UNKNOWN = "PoolUnknown"
    NOT_MEASURED = "NotMeasured"


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
        condition_of(
            kind,
            contract,
            checks,
            otherwise=(Status.TRUE, reason, message),
            generation=contract.generation,
        )
        for kind, checks, reason, message in _CHAINS
    ]
    failed = next((part for part in parts if part.status is Status.FALSE), None)
    if failed is None:
        message = "requests are served under it"
        ready = Condition(ConditionType.READY, Status.TRUE, Reason.READY, message, contract.generation)
    else:
        ready = replace(failed, type=ConditionType.READY)
    return (ready, *parts)


def _message(problems: list[ContractProblem]) -> str:
    lines = [f"{problem.message}; {problem.suggestion}" for problem in problems[:3]]
    if len(problems) > 3:
        lines.append(f"and {len(problems) - 3} more")
    return " | ".join(lines)
