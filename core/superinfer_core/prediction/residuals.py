"""What predictions leave out, learned from how they turned out: actual less predicted, as quantiles.

Promise: bounded memory; what is not a finite number is ignored; nothing is claimed before enough was seen.
Not thread-safe: one owner observes.
"""

from math import isfinite

from superinfer_core.prediction.recent import RecentValues


class Residuals:
    """Quantiles of the last `size` differences.

    Args:
        size: how many are remembered.
        enough: below so many the answer is 0: no correction.
    """

    __slots__ = ("_enough", "_recent")

    def __init__(self, size: int = 256, enough: int = 16) -> None:
        self._enough = max(1, enough)
        self._recent = RecentValues(size)

    @property
    def known(self) -> bool:
        """Whether enough was seen."""
        return len(self._recent) >= self._enough

    def observe(self, difference: float) -> None:
        """Learn how far off one prediction was; positive means it came later than predicted."""
        if isfinite(difference):
            self._recent.add(difference)

    def quantile(self, q: float) -> float:
        """The difference not exceeded with probability `q`; 0 before enough was seen."""
        if not self.known:
            return 0.0
        count = len(self._recent)
        return self._recent.ascending[min(count - 1, max(0, int(q * count)))]
