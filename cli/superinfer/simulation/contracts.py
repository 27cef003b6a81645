"""The windows of simulated contracts: what is left of each error budget as a run goes on.

Promise: one owner; cheap. Over a whole run the window is the run.
"""

from superinfer_core.slo import Tier

AVAILABILITY = {Tier.GOLD: 0.9, Tier.SILVER: 0.8, Tier.BRONZE: 0.5}
PERCENTILE = {Tier.GOLD: 0.99, Tier.SILVER: 0.99, Tier.BRONZE: 0.95}


class _Counts:
    __slots__ = ("kept", "offered", "refused", "served", "tier")

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.offered = self.served = self.kept = self.refused = 0


class ContractTally:
    """Offered, served and kept per contract."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

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

    def state(self, contract: str) -> tuple[bool, float]:
        """(holds, budget left) as of now: the availability budget, in whole requests."""
        counts = self._counts.get(contract)
        if counts is None or counts.offered < 10:
            return True, 1.0
        allowed = (1 - AVAILABILITY[counts.tier]) * counts.offered
        left = max(0.0, 1.0 - counts.refused / allowed) if allowed > 0 else 1.0
        return True, round(left, 2)

    def fulfilled(self) -> dict[str, bool]:
        """Per contract, whether percentiles over what was served and availability both held."""
        return {
            name: c.served >= AVAILABILITY[c.tier] * c.offered - 1e-9
            and c.kept >= PERCENTILE[c.tier] * c.served - 1e-9
            for name, c in self._counts.items()
        }
