"""Pods the API server would not take: a quota, Pod Security, a webhook, a bad template. Pure.

Trying again at once is no cure: the pool says why, and the next try comes later each time, or at once when
the pool is edited.
"""

from dataclasses import dataclass

from superinfer_core.pools.waits import growing_wait_s


@dataclass(frozen=True, slots=True)
class Refused:
    """The last refusal of a pool's pods.

    Attributes:
        revision: of the pods that were refused.
        reason: the server's word, CamelCase.
        message: the server's words.
        strikes: refusals that followed each other.
        until: no new try before.
    """

    revision: str
    reason: str
    message: str
    strikes: int
    until: float

    def holds(self, revision: str, now: float) -> bool:
        """Whether it is too early for another try."""
        return self.revision == revision and now < self.until


def refused_again(before: Refused | None, *, revision: str, reason: str, message: str, now: float) -> Refused:
    """A refusal after the one before."""
    strikes = before.strikes + 1 if before is not None and before.revision == revision else 1
    return Refused(revision, reason or "Refused", message, strikes, now + growing_wait_s(strikes))
