"""The vocabulary of a promise: metrics, objectives, tiers, and the promise one request carries.

Everything else in core is built on these words, so none of it is imported here.

Percentiles are over requests. ITL of a request is (last - first token) / (n - 1), so token k is due at
first + k * target: earlier slack pays for later tokens.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Metric(StrEnum):
    """What an objective bounds."""

    TTFT = "TTFT"
    ITL = "ITL"
    E2E = "E2E"


class Tier(StrEnum):
    """Preset of a contract: default TTFT objective and default rank."""

    GOLD = "Gold"
    SILVER = "Silver"
    BRONZE = "Bronze"

    @property
    def rank(self) -> int:
        """0 for the highest tier; lower is served first."""
        return _TIER_RANK[self]

    @property
    def preset_ttft_ms(self) -> int:
        """TTFT P99 target where a contract states no objective."""
        return _TIER_TTFT_MS[self]


_TIER_RANK: Final = {Tier.GOLD: 0, Tier.SILVER: 1, Tier.BRONZE: 2}
_TIER_TTFT_MS: Final = {Tier.GOLD: 30, Tier.SILVER: 100, Tier.BRONZE: 500}

BEST_EFFORT_TIER_RANK: Final = 9
"""Tier rank of work without a promise: after every tier."""

MAX_TARGET_MS: Final = 3_600_000
"""One hour: the longest promise, in headers and in contracts."""


class OnInfeasible(StrEnum):
    """What happens to a request whose contract cannot be kept."""

    REJECT = "Reject"
    DEGRADE = "Degrade"
    FALLBACK = "Fallback"


class AccessMode(StrEnum):
    """Whose keys a contract serves under `auth: Required`."""

    OWN_KEYS = "OwnKeys"
    ANY_KEY = "AnyKey"


class Isolation(StrEnum):
    """What else may run on the hardware of a chiplet; each includes the ones before it."""

    SHARED = "Shared"
    INSTANCE = "Instance"
    DEVICE = "Device"

    @property
    def strength(self) -> int:
        """0 for the weakest."""
        return _ISOLATION_STRENGTH[self]


_ISOLATION_STRENGTH: Final = {Isolation.SHARED: 0, Isolation.INSTANCE: 1, Isolation.DEVICE: 2}


@dataclass(frozen=True, slots=True)
class Objective:
    """One bound: `metric` within `target_ms` for `percentile` percent of the requests of a window."""

    metric: Metric
    percentile: float
    target_ms: int


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """Importance of work; smaller sorts first. Tier first, then priority (higher priority first)."""

    tier_rank: int
    negated_priority: int = 0

    @property
    def sheddable(self) -> bool:
        """Negative priority, or no promise at all: gives way when there is not enough for everyone."""
        return self.negated_priority > 0 or self.tier_rank >= BEST_EFFORT_TIER_RANK


@dataclass(frozen=True, slots=True)
class RequestSlo:
    """The resolved promise of one request: targets after headers, and the state of its contract's window.

    Attributes:
        contract: "namespace/serviceID", or "" without a contract.
        rank: importance.
        ttft_ms, itl_ms, e2e_ms: targets, None where nothing is promised.
        max_jitter_ms: greatest minus least gap between tokens, or None.
        quantile: the prediction quantile admission must keep (0 < q < 1).
        best_effort: no objective is enforced.
        contract_holds: False once the window cannot be saved any more.
        budget_left: 0..1 of the error budget that is left, least over the objectives.
    """

    contract: str
    rank: Rank
    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None
    max_jitter_ms: float | None = None
    quantile: float = 0.99
    best_effort: bool = False
    contract_holds: bool = True
    budget_left: float = 1.0
