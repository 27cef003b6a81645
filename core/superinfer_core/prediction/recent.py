"""The last observations, kept sorted: quantiles of a window that slides by one with each of them.

Promise: bounded memory. Not thread-safe: one owner adds, decisions take plain numbers.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence


class RecentValues:
    """The last `size` values; the oldest makes room for a new one."""

    __slots__ = ("_recent", "_size", "_sorted")

    def __init__(self, size: int) -> None:
        self._size = max(1, size)
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def ascending(self) -> Sequence[float]:
        """The values, the least first; not to be changed."""
        return self._sorted

    def add(self, value: float) -> None:
        """Take in a value, which must not be NaN: it has no place in an order."""
        self._recent.append(value)
        insort(self._sorted, value)
        if len(self._recent) > self._size:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]

    def count_below(self, value: float) -> int:
        """How many are less than `value`."""
        return bisect_left(self._sorted, value)
