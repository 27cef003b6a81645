"""How long an executor is usually away, learned from the times it was. Owned by the event loop."""

from math import inf
from typing import Final

_MEMORY: Final = 0.5
"""Weight of the newest outage."""


class Outages:
    """Of one executor."""

    __slots__ = ("_mean_ms", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: float | None = None
        self._mean_ms: float | None = None

    def note(self, now_ms: float, *, serving: bool) -> None:
        """It serves, or it does not."""
        if not serving:
            if self._since_ms is None:
                self._since_ms = now_ms
        elif self._since_ms is not None:
            lasted_ms, self._since_ms = now_ms - self._since_ms, None
            before_ms = lasted_ms if self._mean_ms is None else self._mean_ms
            self._mean_ms = before_ms + _MEMORY * (lasted_ms - before_ms)

    def left_ms(self, now_ms: float) -> float:
        """Until it is expected back: 0 while it is there, infinite where it never came back before."""
        if self._since_ms is None:
            return 0.0
        if self._mean_ms is None:
            return inf
        return max(0.0, self._since_ms + self._mean_ms - now_ms)
