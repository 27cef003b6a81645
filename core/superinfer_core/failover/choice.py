"""Where a cut request goes on.

An executor that still keeps the request's next deadline comes before one that does not. Among those that keep
it, one that holds the request's checkpoints comes first, since its copy spares the others' engines work too;
then the one that speaks soonest, recomputing what has to be recomputed; then the emptiest; then by name, so
that the answer is one and the same for equal facts. Where no deadline can be kept, the soonest wins. An
executor that is away counts with the time it is expected to take to come back, and not at all where nobody
knows. One that failed the request, or tries another that may bring it down, comes last. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

RESTORE_SHARE: Final = 0.1
"""Fetching blocks is taken to last this share of recomputing them: no executor tells how long it does."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One executor that might take the request.

    Attributes:
        executor: its name.
        available_in_ms: 0 while it serves; else when it is expected to serve again; infinite: unknown.
        backlog_ms: predicted time until work submitted now would start there.
        recompute_ms: predicted time of computing prompt and delivered tokens again there.
        holds_checkpoint: it can restore the request's blocks instead.
        requests: how many it has from here already.
        suspect: it failed this very request a moment ago, and has not been replaced since.
        on_trial: it has a request that may be what brings engines down, and is tried alone.
    """

    executor: str
    available_in_ms: float = 0.0
    backlog_ms: float = 0.0
    recompute_ms: float = 0.0
    holds_checkpoint: bool = False
    requests: int = 0
    suspect: bool = False
    on_trial: bool = False

    @property
    def next_token_in_ms(self) -> float:
        """When the request would speak again there."""
        share = RESTORE_SHARE if self.holds_checkpoint else 1.0
        return self.available_in_ms + self.backlog_ms + self.recompute_ms * share


def choose(
    candidates: Iterable[Candidate], remaining_ms: float = inf, *, alone: bool = False
) -> Candidate | None:
    """The executor to go on with; None where nobody is there and nobody is known to come back.

    Args:
        candidates: what is known of each.
        remaining_ms: until the request's next deadline; infinite without one, negative when it has passed.
        alone: it must not go where another request is on trial; others only avoid it.
    """
    possible = [
        candidate
        for candidate in candidates
        if candidate.available_in_ms < inf and not (alone and candidate.on_trial)
    ]
    trusted = [candidate for candidate in possible if not (candidate.suspect or candidate.on_trial)]
    return min(trusted or possible, key=lambda candidate: _order(candidate, remaining_ms), default=None)


def next_deadline_in_ms(
    *,
    now_ms: float,
    arrived_ms: float,
    first_token_ms: float | None,
    tokens: int,
    ttft_ms: float | None,
    itl_ms: float | None,
    e2e_ms: float | None,
) -> float:
    """Milliseconds until the next thing of a request is due; infinite where nothing was promised.

    `tokens` is of the choice that is furthest: token k is due at first + k * target.
    """
    due = inf
    if first_token_ms is None:
        if ttft_ms is not None:
            due = arrived_ms + ttft_ms
    elif itl_ms is not None:
        due = first_token_ms + tokens * itl_ms
    if e2e_ms is not None:
        due = min(due, arrived_ms + e2e_ms)
    return due - now_ms


def _order(candidate: Candidate, remaining_ms: float) -> tuple[bool, bool, float, int, str]:
    soon_ms = candidate.next_token_in_ms
    late = soon_ms > remaining_ms
    kept_by_copy = not late and remaining_ms < inf and candidate.holds_checkpoint
    return (late, not kept_by_copy, soon_ms, candidate.requests, candidate.executor)
