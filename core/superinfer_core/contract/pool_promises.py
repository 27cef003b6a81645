"""What all contracts of a pool promise together: the tightest targets, and the most that may be asked for.

Only contracts in effect count. A bound holds for the pool where every contract states it; requests that come
under no contract are nobody's promise and are not counted. Pure; equal contracts give an equal result.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.slo import Metric, Objective


@dataclass(frozen=True, slots=True)
class PoolPromises:
    """Promises that one pool has to keep.

    Attributes:
        contracts: how many there are.
        objectives: the tightest of each metric.
        at_once: requests in flight at most over all of them; None where one of them sets no limit.
        requests_per_second: likewise.
    """

    contracts: int = 0
    objectives: tuple[Objective, ...] = ()
    at_once: int | None = None
    requests_per_second: float | None = None


NO_PROMISES = PoolPromises()


def promises_by_pool(contracts: Iterable[EffectiveContract]) -> dict[str, PoolPromises]:
    """The promises of every pool that has some, by namespace/name."""
    by_pool: dict[str, list[EffectiveContract]] = {}
    for contract in contracts:
        if contract.pool is not None:
            by_pool.setdefault(contract.pool, []).append(contract)
    return {key: _together(found) for key, found in by_pool.items()}


def _together(contracts: list[EffectiveContract]) -> PoolPromises:
    concurrency = [one.quota.concurrency for one in contracts]
    rates = [one.quota.requests_per_second for one in contracts]
    tightest: dict[Metric, Objective] = {}
    for objective in (objective for one in contracts for objective in one.objectives):
        known = tightest.get(objective.metric)
        if known is None or _tightness(objective) < _tightness(known):
            tightest[objective.metric] = objective
    return PoolPromises(
        contracts=len(contracts),
        objectives=tuple(tightest[metric] for metric in Metric if metric in tightest),
        at_once=None if None in concurrency else sum(one for one in concurrency if one is not None),
        requests_per_second=None if None in rates else sum(one for one in rates if one is not None),
    )


def _tightness(objective: Objective) -> tuple[int, float]:
    """Less is tighter; of equal targets the one that more requests must meet."""
    return objective.target_ms, -objective.percentile
