"""The windows of simulated contracts: what is left of each error budget as a run goes on.

Promise: one owner; cheap. Over a whole run the window is the run.
"""

from superinfer_core.contract.budget import error_budget
from superinfer_core.slo import Tier

AVAILABILITY = {Tier.GOLD: 0.9, Tier.SILVER: 0.8, Tier.BRONZE: 0.5}
PERCENTILE = {Tier.GOLD: 0.99, Tier.SILVER: 0.99, Tier.BRONZE: 0.95}


class _Counts:
    __slots__ = ("kept", "offered", "refused", "served", "tier")

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.offered = self.served = self.kept = self.refused = 0


class ContractTally:
    """Offered, served and kept per contract over one window of `window_ms` that starts at 0."""

    def __init__(self, window_ms: float) -> None:
        self._counts: dict[str, _Counts] = {}
        self._window_ms = max(1.0, window_ms)

    def offered(self, contract: str, tier: Tier) -> None:
        """A request came."""
        self._counts.setdefault(contract, _Counts(tier)).offered += 1

    def served(self, contract: str, *, kept: bool) -> None:
        """A request was served to its end."""
        counts = self._counts[contract]
        counts.served += 1
        counts.kept += kept

    def refused(self, contract: str) -> None:
        """A request was refused or given up."""
        self._counts[contract].refused += 1

    def state(self, contract: str, now_ms: float) -> tuple[bool, float]:
        """(holds, budget left) as of now, the least over the percentile and availability."""
        c = self._counts.get(contract)
        if c is None:
            return True, 1.0
        covered = min(1.0, max(1e-3, now_ms / self._window_ms))
        served = error_budget(
            100 * AVAILABILITY[c.tier], considered=c.offered, missed=c.refused, covered=covered
        )
        kept = error_budget(
            100 * PERCENTILE[c.tier], considered=c.served, missed=c.served - c.kept, covered=covered
        )
        return served.holds and kept.holds, min(served.left, kept.left)

    def fulfilled(self) -> dict[str, bool]:
        """Per contract, whether percentiles over what was served and availability both held."""
        return {
            name: c.served >= AVAILABILITY[c.tier] * c.offered - 1e-9
            and c.kept >= PERCENTILE[c.tier] * c.served - 1e-9
            for name, c in self._counts.items()
        }
