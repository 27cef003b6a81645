"""How many executors a pool gets: what is asked for, within the bounds of its autoscaling. Pure.

Whoever writes `spec.replicas` (a person, an autoscaler through the scale subresource) may write anything; the
bounds are the owner's word on what may come of it, and count for zero, too.
"""

from dataclasses import dataclass
from enum import StrEnum

from superinfer_core.api.v1alpha1.chipletpool import ChipletPoolSpec


class Limit(StrEnum):
    """Which bound holds."""

    FEWEST = "minReplicas"
    MOST = "maxReplicas"


@dataclass(frozen=True, slots=True)
class Replicas:
    """Executors of a pool.

    Attributes:
        asked: spec.replicas.
        wanted: what comes of it.
        bounds: (minReplicas, maxReplicas); None where the pool has none.
    """

    asked: int
    wanted: int
    bounds: tuple[int, int] | None = None

    @property
    def limit(self) -> Limit | None:
        """The bound that stands in the way; None where what is asked for is what is wanted."""
        if self.wanted == self.asked:
            return None
        return Limit.FEWEST if self.asked < self.wanted else Limit.MOST


def replicas_of(spec: ChipletPoolSpec) -> Replicas:
    """How many executors a pool gets."""
    if spec.autoscaling is None:
        return Replicas(spec.replicas, spec.replicas)
    fewest, most = spec.autoscaling.min_replicas, spec.autoscaling.max_replicas
    return Replicas(spec.replicas, min(most, max(fewest, spec.replicas)), (fewest, most))


def most_executors(spec: ChipletPoolSpec) -> int:
    """The most executors contracts may count on: the upper bound, or what is asked for without one."""
    return spec.autoscaling.max_replicas if spec.autoscaling is not None else spec.replicas
