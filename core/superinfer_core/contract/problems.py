"""What can be wrong with a contract, named so that a reader can act on it.

Two kinds. A `FieldProblem` is about one document: a field, the value found there (cut to 80 characters) and
the fix. A `ContractProblem` is about contracts together: what kind of conflict, both sides, and a suggestion.
Nothing here raises on its own, and everything is immutable, so it can be shared between threads.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from typing_extensions import override

SHOWN_CHARACTERS: Final = 80
"""Values are quoted up to here: an error must not become as large as the input that caused it."""

_TOLD_PROBLEMS: Final = 50
"""Lines of an error's text; `problems` always has all of them."""


def shown(value: object) -> str:
    """The value as text of at most 80 characters, whatever it is."""
    if isinstance(value, str | bytes):
        text = repr(value[: SHOWN_CHARACTERS + 1])
    elif isinstance(value, bool) or value is None or isinstance(value, float):
        text = repr(value)
    elif isinstance(value, int):
        # Printing an integer of more than 4,300 digits raises in Python.
        text = repr(value) if value.bit_length() <= 256 else f"an integer of {value.bit_length()} bits"
    elif isinstance(value, dict):
        text = f"a mapping of {len(value)} fields" if value else "{}"
    elif isinstance(value, list | tuple | set):
        text = f"a list of {len(value)} items" if value else "[]"
    else:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


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


class InvalidSlo(ValueError):
    """A header asks for something that cannot be a promise: names the field, the value and the fix."""

    def __init__(self, field: str, value: str, fix: str) -> None:
        self.field = field
        self.value = shown(value)
        self.fix = fix
        super().__init__(f"{field}: {self.value} is not usable; {fix}")


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
