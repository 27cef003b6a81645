"""Waits that double with every failure in a row, up to a bound. Pure.

Pools, fault domains, processes and cut requests wait by this one rule, each with bounds of its own.
"""

from typing import Final

# 2^63 times any first wait is beyond every bound, and no power of a count grown for months overflows a float.
_MOST_DOUBLINGS: Final = 63


def doubled(first: float, times: int, most: float) -> float:
    """The wait after `times` failures in a row (at least 1): `first` after one, never more than `most`."""
    return float(min(most, first * 2.0 ** min(times - 1, _MOST_DOUBLINGS)))
