"""The explanations of pools that wait for room, kept from plan to plan.

Promise: pools that ask for the same share one. What a plan takes is looked at as far as it goes when a pool
is explained, and looked at again before the next plan, which finds it given back. One owner, one thread.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.fit import Fitting
from superinfer_core.placement.fleet import Fleet
from superinfer_core.placement.outcome import Unplaced
from superinfer_core.placement.refusals import Explanation


def asked_of_nodes(pool: PoolDemand) -> Hashable:
    """All that decides which nodes can take an executor of a pool; equal for pools that ask for the same."""
    selector, requests = frozenset(pool.node_selector.items()), frozenset(pool.requests.items())
    return (pool.chiplet, pool.allocation, selector, pool.tolerations, requests)


@dataclass(slots=True, eq=False)
class _Kept:
    """An explanation, the nodes to look at again first, and how far into this plan's log it has looked."""

    explanation: Explanation
    again: set[str] = field(default_factory=set)
    read: int = 0
    used: bool = True


class Explanations:
    """See the module."""

    def __init__(self, fleet: Fleet, fitting: Fitting) -> None:
        self._fleet, self._fitting = fleet, fitting
        self._kept: dict[Hashable, _Kept] = {}

    def begin(self, changed: Iterable[str]) -> None:
        """A plan begins; these nodes are not what they were at the end of the last one."""
        names = set(changed)
        for kept in self._kept.values():
            kept.again |= names
            kept.read, kept.used = 0, False

    def of(self, pool: PoolDemand, count: int, taken: Sequence[str], before: Unplaced | None) -> Unplaced:
        """Why `count` executors of a pool have no place.

        Args:
            pool: whose.
            count: how many.
            taken: nodes this plan has taken something of, in order, as far as it is.
            before: what was said before, which is said again while it holds.
        """
        key = asked_of_nodes(pool)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(Explanation(self._fleet, self._fitting, pool))
        else:
            kept.explanation.update(kept.again.union(taken[kept.read :]))
            kept.again.clear()
        kept.read, kept.used = len(taken), True
        return kept.explanation.unplaced(pool.key, count, before)

    def end(self) -> None:
        """The plan is made: what nobody asked for is forgotten."""
        self._kept = {key: kept for key, kept in self._kept.items() if kept.used}
