"""How long an executor is usually away, and which of its engines ended. Owned by the event loop."""

from collections import deque
from math import inf
from typing import Final

_MEMORY: Final = 0.5
"""Weight of the newest outage."""
_LATEST: Final = 32


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


class EngineEnds:
    """Engines of one executor that ended without being asked to, by what its load reports say.

    When the stream breaks nothing is known of the engine: it may live on under a new sidecar, and then the
    same generation comes back.
    """

    __slots__ = ("_before", "_generation", "latest")

    def __init__(self) -> None:
        self._generation = ""
        self._before = ""
        self.latest: deque[tuple[float, str]] = deque(maxlen=_LATEST)
        """(when it was noticed, generation)."""

    def note(self, now_ms: float, generation: str, *, asked_to: bool) -> None:
        """A report says that this engine serves; empty: none does."""
        if generation == self._generation:
            return
        ended, self._generation = self._generation, generation
        if generation:
            ended, self._before = ended or self._before, ""
        if ended and ended != generation and not asked_to:
            self.latest.append((now_ms, ended))

    def stream_broke(self) -> None:
        """Whatever served may or may not go on."""
        self._before, self._generation = self._generation or self._before, ""
