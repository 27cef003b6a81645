"""Percentiles of what was measured or simulated: one definition, so that reports can be compared. Pure."""

from collections.abc import Iterable
from math import ceil
from typing import Final

_ROUNDING: Final = 1e-9
"""0.07 x 100 is a little more than 7 in floating point, and must not be the eighth value."""


def nearest_rank(values: Iterable[float], share: float, *, otherwise: float = 0.0) -> float:
    """The least of the values that a `share` of them (0 to 1) does not exceed; `otherwise` without values."""
    ordered = sorted(values)
    if not ordered:
        return otherwise
    return ordered[min(len(ordered), max(1, ceil(share * len(ordered) - _ROUNDING))) - 1]
