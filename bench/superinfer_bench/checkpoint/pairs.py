"""What a mode costs, from rounds that are measured in turns: medians of pairs, and how sure they are. Pure.

Each round without checkpoints is compared with the round beside it, so that whatever slows the machine for
longer than two rounds slows both. The interval is that of the median, from the order of the pairs alone: it
needs no assumption of how noise is spread, and at least six pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Any, Final

from superinfer_bench.report import Aim

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Loss:
    """In percent of the rounds without; below 0: a gain.

    Attributes:
        low, high: where the median is with `CONFIDENCE`; None where there are too few pairs to say.
    """

    percent: float
    low: float | None
    high: float | None
    pairs: int

    def as_json(self) -> dict[str, Any]:
        """As it stands in a file."""
        low, high = (None if end is None else round(end, 2) for end in (self.low, self.high))
        return {"percent": round(self.percent, 2), "low": low, "high": high, "pairs": self.pairs}

    def aim(self, name: str, most_percent: float) -> Aim:
        """Met where all of the interval is within; what spans the bound is not decided, and not met."""
        wanted = f"<= {most_percent:g} %"
        if self.low is None or self.high is None:
            return Aim(name, wanted, f"{self.percent:.1f} %: too few pairs to be sure", met=False)
        got = f"{self.percent:.1f} % ({self.low:.1f} to {self.high:.1f})"
        if self.high > most_percent >= self.low:
            got += ": not decided"
        return Aim(name, wanted, got, met=self.high <= most_percent)


def loss_of(costs: Sequence[float], without: Sequence[float]) -> Loss:
    """How much more a mode costs than the rounds without, pair by pair; costs, such as seconds per token."""
    found = sorted(100.0 * (cost / base - 1.0) for cost, base in zip(costs, without, strict=True))
    outside = _outside(len(found))
    low, high = (found[outside - 1], found[-outside]) if outside else (None, None)
    return Loss(median(found), low, high, len(found))


def _outside(pairs: int) -> int:
    """So many of the smallest, and of the largest, lie outside the interval or bound it; 0: none is sure."""
    count, tail = 0, 0.0
    while count <= pairs:
        tail += comb(pairs, count) / 2.0**pairs
        if tail > (1.0 - CONFIDENCE) / 2:
            return count
        count += 1
    return 0
