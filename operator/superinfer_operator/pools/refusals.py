"""What the API server would not take for a pool, beside its pods: its Service, budget, certificate, claims.

A quota, a policy or a webhook that is away is for people to settle. Promise: the pool's status has the
server's words, the next try comes later each time and at once when the pool is edited, and no round fails for
it, so that one namespace costs the others nothing. Concurrency: one event loop, never across an await.
"""

from collections.abc import Container
from typing import Final

from superinfer_core.pools.refused import Refused, refused_again
from superinfer_kube.errors import KubeError
from superinfer_operator.watching.pools import PoolRecord

_Part = tuple[str, str]
"""A pool's key, and the plural of what it could not have."""

_SAID_CHARACTERS: Final = 900


class Refusals:
    """The last refusals, by pool and kind."""

    def __init__(self) -> None:
        self._refused: dict[_Part, Refused] = {}

    def holds(self, pool: PoolRecord, plural: str, now: float) -> bool:
        """Whether it is too early to try again."""
        refused = self._refused.get((pool.key, plural))
        return refused is not None and refused.holds(_edition(pool), now)

    def note(self, pool: PoolRecord, plural: str, error: KubeError, now: float) -> None:
        """It was refused just now."""
        self._refused[pool.key, plural] = refused_again(
            self._refused.get((pool.key, plural)),
            revision=_edition(pool),
            reason=error.reason,
            message=str(error)[:_SAID_CHARACTERS],
            now=now,
        )

    def settle(self, pool: PoolRecord, plural: str) -> None:
        """It is there."""
        self._refused.pop((pool.key, plural), None)

    def of(self, pool: str) -> Refused | None:
        """The first refusal that stands, of one pool."""
        return next((refused for (key, _), refused in self._refused.items() if key == pool), None)

    def next_at(self, now: float) -> float | None:
        """When the next is tried again; what time alone did not settle waits for an edit."""
        return min((one.until for one in self._refused.values() if one.until > now), default=None)

    def forget(self, pool: PoolRecord) -> None:
        """Nothing of it is wanted any more."""
        self._refused = {part: refused for part, refused in self._refused.items() if part[0] != pool.key}

    def forget_missing(self, known: Container[str]) -> None:
        """Keep nothing of pools that are gone."""
        self._refused = {part: refused for part, refused in self._refused.items() if part[0] in known}


def _edition(pool: PoolRecord) -> str:
    return f"{pool.uid}/{pool.generation}"
