"""What can be wrong with a contract, named so that a reader can act on it.

Two kinds. A `FieldProblem` is about one document: a field, the value found there (cut to 80 characters) and
the fix. A `ContractProblem` is about contracts together: what kind of conflict, both sides, and a suggestion.
Nothing here raises on its own, and everything is immutable, so it can be shared between threads.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from typing_extensions import override

from superinfer_core.values import InvalidValue

_TOLD_PROBLEMS: Final = 50
"""Lines of an error's text; `problems` always has all of them."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing wrong in a document.

    Attributes:
        field: path as a user would write it, e.g. `spec.objectives[0].targetMs`.
        value: what was found, quoted and cut to 80 characters; "" where nothing was.
        message: what is wrong with it.
        fix: what to write instead.
    """

    field: str
    value: str
    message: str
    fix: str

    def describe(self) -> str:
        """One line: field, problem, value, fix."""
        found = f" (got {self.value})" if self.value else ""
        return f"{self.field}: {self.message}{found}; {self.fix}"

    @override
    def __str__(self) -> str:
        return self.describe()


class ContractInvalid(ValueError):
    """A document is not a contract; `problems` lists everything wrong with it, never just the first."""

    def __init__(self, problems: tuple[FieldProblem, ...]) -> None:
        self.problems = problems
        lines = [problem.describe() for problem in problems[:_TOLD_PROBLEMS]]
        if len(problems) > _TOLD_PROBLEMS:
            lines.append(f"and {len(problems) - _TOLD_PROBLEMS} more problems")
        super().__init__("\n".join(lines))


class InvalidSlo(InvalidValue):
    """A header asks for something that cannot be a promise."""


class ProblemKind(StrEnum):
    """Why a contract is not (wholly) in effect. Also the `reason` of its conditions."""

    INVALID_SPEC = "InvalidSpec"
    DUPLICATE_SERVICE_ID = "DuplicateServiceID"
    PARENT_CYCLE = "ParentCycle"
    LOOSER_THAN_PARENT = "LooserThanParent"
    PARENT_NOT_FOUND = "ParentNotFound"
    PARENT_NOT_ACCEPTED = "ParentNotAccepted"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_NOT_ALLOWED = "PoolNotAllowed"
    FALLBACK_NOT_FOUND = "FallbackNotFound"
    FALLBACK_MISSING = "FallbackMissing"
    FALLBACK_CYCLE = "FallbackCycle"
    TARGETS_UNREACHABLE = "TargetsUnreachable"
    RESOURCES_UNAVAILABLE = "ResourcesUnavailable"


@dataclass(frozen=True, slots=True)
class ContractProblem:
    """One conflict a contract is part of, told to the side that has to change.

    Attributes:
        kind: which conflict.
        subject: "namespace/name" of the contract that does not get its way.
        other: the other side: a contract or pool, or "" where there is none.
        field: the field in question, or "" for the contract as a whole.
        message: both sides in words, with their values.
        suggestion: what would settle it.
    """

    kind: ProblemKind
    subject: str
    other: str
    field: str
    message: str
    suggestion: str

    def describe(self) -> str:
        """One line for logs, events and `superinfer contract check`."""
        return f"{self.kind}: {self.message}; {self.suggestion}"

    @override
    def __str__(self) -> str:
        return self.describe()


class ContractConflictError(ValueError):
    """Contracts contradict each other; raised where a caller wants an exception instead of a list."""

    def __init__(self, problems: tuple[ContractProblem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problem.describe() for problem in problems))
