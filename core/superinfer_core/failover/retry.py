"""For how long, and how often, somebody is looked for who takes a cut request. Pure."""

from dataclasses import dataclass

from superinfer_core.doubling import doubled


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of waiting.

    Attributes:
        within_ms: how long one interruption may last while no executor can take the request.
        first_pause_ms, longest_pause_ms: waits while no executor is there, doubling.
    """

    within_ms: float = 180_000.0
    first_pause_ms: float = 20.0
    longest_pause_ms: float = 500.0

    def pause_ms(self, looks: int) -> float:
        """How long to wait after having looked `looks` times in vain (at least 1)."""
        return doubled(self.first_pause_ms, looks, self.longest_pause_ms)

    def gives_up(self, waited_ms: float) -> bool:
        """Whether it has waited long enough."""
        return waited_ms >= self.within_ms
