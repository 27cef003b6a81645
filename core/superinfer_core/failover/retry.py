"""How often, and for how long, a cut request is tried again. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of going on.

    Attributes:
        attempts: failures in a row without one new token after which a request is given up: it may be what
            brings engines down, and must not be handed from one to the next for ever.
        within_ms: how long one interruption may last, whatever the reason.
        first_pause_ms, longest_pause_ms: waits while no executor is there, doubling.
    """

    attempts: int = 4
    within_ms: float = 60_000.0
    first_pause_ms: float = 20.0
    longest_pause_ms: float = 500.0

    def pause_ms(self, looks: int) -> float:
        """How long to wait after having looked `looks` times in vain (at least 1)."""
        return min(self.longest_pause_ms, self.first_pause_ms * 2.0 ** min(looks - 1, 16))

    def gives_up(self, *, failures_in_a_row: int, waited_ms: float) -> bool:
        """Whether going on is over."""
        return failures_in_a_row > self.attempts or waited_ms >= self.within_ms
