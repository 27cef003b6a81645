"""Plain counts the desk keeps while it works; metrics read them when they are asked for."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

MOST_CONTRACTS: Final = 100
OTHER_CONTRACTS: Final = "other"
NO_CONTRACT: Final = "none"
SLACK_BUCKETS_MS: Final = (
    -1000.0,
    -300.0,
    -100.0,
    -30.0,
    0.0,
    10.0,
    30.0,
    100.0,
    300.0,
    1000.0,
    3000.0,
    10000.0,
)


class Histogram:
    """Counts per bucket, and the sum; one bisect per observation."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value; infinite or undefined ones say nothing and are left out."""
        if -1e15 < value < 1e15:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.total += value


@dataclass(slots=True)
class Score:
    """How good a prediction was: covered (actual within the predicted quantile) and its error."""

    predictions: int = 0
    covered: int = 0
    error_sum: float = 0.0
    predicted_ms_sum: float = 0.0
    actual_ms_sum: float = 0.0

    def observe(self, predicted_ms: float, actual_ms: float) -> None:
        """Compare one prediction with what happened."""
        if not (0 <= predicted_ms < 1e12 and actual_ms > 0):
            return
        self.predictions += 1
        self.covered += actual_ms <= predicted_ms
        self.error_sum += abs(predicted_ms - actual_ms) / actual_ms
        self.predicted_ms_sum += predicted_ms
        self.actual_ms_sum += actual_ms


@dataclass(slots=True)
class Counters:
    """Everything counted since the process started."""

    submits: int = 0
    admitted: int = 0
    finished: int = 0
    cancelled: int = 0
    duplicates: int = 0
    stale_outputs: int = 0
    frames: int = 0
    tokens: int = 0
    preemptions: int = 0
    slow_ingresses: int = 0
    engine_starts: int = 0
    engine_losses: int = 0
    engine_hangs: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    slack_ms: dict[str, Histogram] = field(default_factory=dict)
    ttft: Score = field(default_factory=Score)
    itl: Score = field(default_factory=Score)
    e2e: Score = field(default_factory=Score)

    def observe_slack(self, contract: str, slack_ms: float) -> None:
        """Count the slack a request had when it was handed to the engine, under its contract or "other"."""
        histogram = self.slack_ms.get(contract or NO_CONTRACT)
        if histogram is None:
            name = contract or NO_CONTRACT if len(self.slack_ms) < MOST_CONTRACTS else OTHER_CONTRACTS
            histogram = self.slack_ms.setdefault(name, Histogram(SLACK_BUCKETS_MS))
        histogram.observe(slack_ms)
