"""What predictions leave out, learned from how they turned out: actual less predicted, as quantiles.

Promise: bounded memory; what is not a finite number is ignored; nothing is claimed before enough was seen.
Not thread-safe: one owner observes.
"""

from bisect import bisect_left, insort
from collections import deque
from math import isfinite


class Residuals:
    """Quantiles of the last `size` differences.

    Args:
        size: how many are remembered.
        enough: below so many the answer is 0: no correction.
    """

    __slots__ = ("_enough", "_recent", "_size", "_sorted")

    def __init__(self, size: int = 256, enough: int = 16) -> None:
        self._size = max(1, size)
        self._enough = max(1, enough)
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    @property
    def known(self) -> bool:
        """Whether enough was seen."""
        return len(self._sorted) >= self._enough

    def observe(self, difference: float) -> None:
        """Learn how far off one prediction was; positive means it came later than predicted."""
        if not isfinite(difference):
            return
        self._recent.append(difference)
        insort(self._sorted, difference)
        if len(self._recent) > self._size:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]

    def quantile(self, q: float) -> float:
        """The difference not exceeded with probability `q`; 0 before enough was seen."""
        count = len(self._sorted)
        if not self.known:
            return 0.0
        return self._sorted[min(count - 1, max(0, int(q * count)))]
