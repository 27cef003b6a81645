"""How long answers get: a quantile sketch of output tokens per contract.

Promise: bounded memory whatever arrives; every answer lies between generated + 1 and the cap. Not
thread-safe: one owner observes, decisions take plain integers.

The sketch is a histogram over logarithmic buckets (DDSketch, arXiv 1908.10693): relative error bounded,
mergeable by adding counts. Old observations fade by halving, so that a contract whose use changes is
followed.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from math import ceil, log
from typing import Final

_GROWTH: Final = 1.1
_LOG_GROWTH: Final = log(_GROWTH)
_MAX_BUCKET: Final = 160  # 1.1 ** 160 is four million tokens
_FADE_AT: Final = 2048.0
OTHER: Final = "other"


def _bucket(tokens: int) -> int:
    return min(_MAX_BUCKET, ceil(log(max(1, tokens)) / _LOG_GROWTH - 1e-9))


_UPPER: Final = tuple(int(_GROWTH**i + 1e-6) for i in range(_MAX_BUCKET + 1))


class LengthSketch:
    """Quantiles of output lengths, within ten percent, in at most 161 counters."""

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0.0] * (_MAX_BUCKET + 1)
        self._total = 0.0

    @property
    def count(self) -> float:
        """Weight of what was observed, after fading."""
        return self._total

    @property
    def counts(self) -> Sequence[float]:
        """Weight per bucket."""
        return self._counts

    def observe(self, tokens: int) -> None:
        """Learn the length of a finished answer; what is not a positive count is ignored."""
        if tokens < 1:
            return
        self._counts[_bucket(tokens)] += 1.0
        self._total += 1.0
        if self._total >= _FADE_AT:
            self._counts = [c * 0.5 for c in self._counts]
            self._total = sum(self._counts)

    def merge(self, other: "LengthSketch") -> None:
        """Add what `other` saw."""
        self._counts = [a + b for a, b in zip(self._counts, other.counts, strict=True)]
        self._total = sum(self._counts)

    def quantile(self, q: float, *, generated: int = 0, cap: int) -> int:
        """Total output tokens not exceeded with probability `q`, given `generated` are out already.

        Conditioning keeps only lengths above `generated`. Knowing nothing (or nothing that long) answers
        `cap`: the safe side for a promise.
        """
        least = generated + 1
        if cap <= least:
            return least
        start = _bucket(generated) + 1 if generated > 0 else 0
        tail = self._counts[start:]
        weight = sum(tail)
        if weight <= 0:
            return cap
        want = min(1.0, max(0.0, q)) * weight
        seen = 0.0
        for i, c in enumerate(tail, start):
            seen += c
            if c and seen >= want:
                return max(least, min(cap, _UPPER[i]))
        return cap


class OutputLengths:
    """One sketch per contract for at most `max_contracts`; the rest share one.

    A contract with fewer than `min_observations` answers is predicted from all of them together.
    """

    __slots__ = ("_all", "_max", "_min", "_sketches")

    def __init__(self, max_contracts: int = 1024, min_observations: int = 20) -> None:
        self._sketches: OrderedDict[str, LengthSketch] = OrderedDict()
        self._all = LengthSketch()
        self._max = max(1, max_contracts)
        self._min = min_observations

    def observe(self, contract: str, tokens: int) -> None:
        """Learn the length of a finished answer of `contract`."""
        self._all.observe(tokens)
        sketch = self._sketches.get(contract)
        if sketch is None:
            name = contract if len(self._sketches) < self._max else OTHER
            sketch = self._sketches.setdefault(name, LengthSketch())
        sketch.observe(tokens)

    def expected(self, contract: str, q: float, generated: int, cap: int) -> int:
        """Predicted total output of a request of `contract` at quantile `q`."""
        sketch = self._sketches.get(contract) or self._sketches.get(OTHER)
        if sketch is None or sketch.count < self._min:
            sketch = self._all
        if sketch.count < self._min:
            return max(generated + 1, cap)
        return sketch.quantile(q, generated=generated, cap=cap)

    def summary(self) -> Mapping[str, tuple[int, int]]:
        """Median and 90th percentile per contract known, for load reports."""
        huge = _UPPER[-1]
        return {
            name: (s.quantile(0.5, cap=huge), s.quantile(0.9, cap=huge))
            for name, s in self._sketches.items()
            if s.count > 0
        }
