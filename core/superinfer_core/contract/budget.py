"""Error budgets: how many misses a percentile allows over a window, and how many of them are left.

P99 over a window leaves 1 % of its requests as budget. While a window is still filling, the requests it will
hold are projected from the rate so far, and one miss is always affordable: nobody is written off for the
first request of the day. Pure functions over frozen values.
"""

from dataclasses import dataclass
from typing import Final

_ROUNDING: Final = 1e-9
_LEAST_COVERED: Final = 1e-3
"""A projection from less than a thousandth of the window is no better than a guess."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The state of one error budget.

    Attributes:
        percent: what was promised.
        considered: requests that count.
        missed: those of them that missed.
        share: kept / considered, 1.0 while nothing was considered.
        left: 0..1 of the budget that is left.
        met: the promise holds over the requests so far.
        holds: the window can still be saved, or does not need to be.
    """

    percent: float
    considered: int
    missed: int
    share: float
    left: float
    met: bool
    holds: bool


@dataclass(frozen=True, slots=True)
class WindowState:
    """What scheduling needs to know of a contract's window: whether it can be saved, and what is left."""

    holds: bool = True
    budget_left: float = 1.0


def error_budget(percent: float, *, considered: int, missed: int, covered: float) -> Budget:
    """The budget of a promise of `percent` percent.

    Args:
        percent: promised share of kept requests, 0 < percent < 100.
        considered: requests that count so far.
        missed: those that missed.
        covered: share of the window that has been observed, 0 < covered <= 1.
    """
    share = 1.0 if considered == 0 else (considered - missed) / considered
    # Compare counts, not shares: 99 kept of 100 is exactly P99, whatever floating point makes of 0.99.
    met = missed <= _allowed_share(percent) * considered + _ROUNDING
    left, holds = budget_left(percent, considered=considered, missed=missed, covered=covered)
    return Budget(percent, considered, missed, share, left, met, met or holds)


def budget_left(percent: float, *, considered: int, missed: int, covered: float) -> tuple[float, bool]:
    """(share of the budget that is left, whether it can hold): the cheap part, for every request."""
    if missed == 0:
        return 1.0, True
    share = _allowed_share(percent)
    if covered >= 1.0:
        allowed = share * considered
    else:
        allowed = max(1.0, share * considered / max(covered, _LEAST_COVERED))
    if missed > allowed + _ROUNDING:
        return 0.0, False
    return max(0.0, 1.0 - missed / allowed), True


def _allowed_share(percent: float) -> float:
    return max(0.0, 1.0 - percent / 100.0)
