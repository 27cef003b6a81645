"""How many bytes may go now: a bucket that fills with time. Pure; `now` is passed in."""

from dataclasses import dataclass


@dataclass(slots=True)
class ByteBudget:
    """Bytes per second, with a burst.

    Attributes:
        bytes_per_s: how fast it fills; 0 or less: no limit.
        burst_bytes: how much it holds.
    """

    bytes_per_s: float
    burst_bytes: float
    _level_bytes: float | None = None
    _at_ms: float = 0.0

    def available(self, now_ms: float) -> float:
        """Bytes that may go at once."""
        if self.bytes_per_s <= 0:
            return float("inf")
        level = self.burst_bytes if self._level_bytes is None else self._level_bytes
        filled = (
            max(0.0, now_ms - self._at_ms) * self.bytes_per_s / 1000.0
            if self._level_bytes is not None
            else 0.0
        )
        self._level_bytes = min(self.burst_bytes, level + filled)
        self._at_ms = max(self._at_ms, now_ms)
        return self._level_bytes

    def spend(self, amount: float, now_ms: float) -> None:
        """Take bytes; one block larger than the burst may overdraw, which later ones pay for."""
        if self.bytes_per_s > 0:
            self._level_bytes = self.available(now_ms) - amount

    def wait_ms(self, amount: float, now_ms: float) -> float:
        """Until so many bytes may go (a full bucket is enough for anything)."""
        missing = min(amount, self.burst_bytes) - self.available(now_ms)
        return max(0.0, missing * 1000.0 / self.bytes_per_s) if self.bytes_per_s > 0 else 0.0
