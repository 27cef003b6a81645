"""Back-pressure: q(t+1) = max(0, q + arrivals - capacity), in milliseconds of predicted engine time."""

from typing import Final

HORIZON_MS: Final = 1000.0
"""The backlog that counts as full pressure: a second of the engine's time."""

TIGHTEN_ABOVE: Final = 0.7
"""Pressure above which the dispatch tick tightens."""

_TIGHT_SHARE: Final = 0.2


def tick_ms(pressure: float, period_ms: float) -> float:
    """How often to look at the queue besides frames and arrivals: five times as often under pressure."""
    return period_ms * _TIGHT_SHARE if pressure > TIGHTEN_ABOVE else period_ms


class BackPressure:
    """The recursion, advanced by its owner; `value` is q over the engine time of the horizon."""

    __slots__ = ("_arrived_ms", "_q_ms")

    def __init__(self) -> None:
        self._q_ms = 0.0
        self._arrived_ms = 0.0

    @property
    def value(self) -> float:
        """Pressure, q / capacity: 0 idle, 1 a horizon's worth of work waits."""
        return self._q_ms / HORIZON_MS

    @property
    def q_ms(self) -> float:
        """Predicted engine time of what is behind."""
        return self._q_ms

    def arrive(self, work_ms: float) -> None:
        """Count work that came in."""
        if 0 < work_ms < float("inf"):
            self._arrived_ms += work_ms

    def advance(self, capacity_ms: float, *, empty: bool) -> None:
        """One tick: the engine could do `capacity_ms` of work. An empty sidecar has nothing behind."""
        self._q_ms = 0.0 if empty else max(0.0, self._q_ms + self._arrived_ms - capacity_ms)
        self._arrived_ms = 0.0
