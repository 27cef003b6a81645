"""An attempt that ended before its request, and the one that took the request up again."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from superinfer_core.refusal import RefusalCode


class Cause(StrEnum):
    """Why an attempt ended before its request: the `cause` label of metrics."""

    EXECUTOR_LOST = "executor_lost"  # its stream broke, or it was silent for too long
    ENGINE_FAILED = "engine_failed"  # its sidecar lives and says so
    HANDED_OVER = "handed_over"  # it drains
    GAP = "gap"  # it skipped tokens
    CANNOT_RESUME = "cannot_resume"  # it takes no delivered tokens


CAUSES: Final = {
    RefusalCode.ENGINE_FAILED: Cause.ENGINE_FAILED,
    RefusalCode.SHUTTING_DOWN: Cause.HANDED_OVER,
    RefusalCode.NOT_RESUMABLE: Cause.CANNOT_RESUME,
}
"""Errors after which another attempt can help."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """An attempt that ended before its request; `begun`: an engine had been given it."""

    cause: Cause
    why: str
    at_ms: float
    begun: bool


@dataclass(slots=True)
class Resume:
    """One time a request went on elsewhere.

    Attributes:
        lost_at_ms, sent_at_ms: when the attempt before it ended, and when this one was sent, on the machine's
            monotonic clock.
        delivered_tokens: what the client, or its answer in the making, had by then.
        computed_tokens: prompt and delivered tokens its new executor had to have in its cache again.
        gap_ms: from the loss to the next output; None where none came.
    """

    cause: Cause
    left: str
    taken_by: str
    lost_at_ms: float
    sent_at_ms: float
    delivered_tokens: int
    computed_tokens: int
    gap_ms: float | None = None
