"""How a pool stands: everything its conditions are decided from. Frozen."""

from dataclasses import dataclass

from superinfer_core.api.v1alpha1.pool_status import PoolReason
from superinfer_core.placement import Flagged, Unplaced
from superinfer_core.pools.replicas import Replicas


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """Why a pool is not accepted."""

    reason: PoolReason
    message: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How a pool stands, in numbers and reasons.

    Attributes:
        generation: that was looked at.
        refusal: why it is not accepted; None where it is.
        deleting: it is being deleted.
        wanted: executors it should have.
        existing, ready, updated, draining: executors that exist, serve, are up to date, are going.
        unplaced: replicas without a chiplet.
        flagged: executors on hardware that is not what was asked for.
        trouble: (reason, message) of executors that cannot start.
        waiting: replicas whose replacement waits, because they failed again and again: (count, until).
        replicas: what was asked for and what comes of it, where the pool has bounds.
    """

    generation: int
    refusal: PoolRefusal | None = None
    deleting: bool = False
    wanted: int = 0
    existing: int = 0
    ready: int = 0
    updated: int = 0
    draining: int = 0
    unplaced: tuple[Unplaced, ...] = ()
    flagged: tuple[Flagged, ...] = ()
    trouble: tuple[tuple[str, str], ...] = ()
    waiting: tuple[int, str] = (0, "")
    replicas: Replicas | None = None

    @property
    def missing(self) -> int:
        """Replicas without a chiplet."""
        return sum(unplaced.count for unplaced in self.unplaced)
