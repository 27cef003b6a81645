"""A step model that follows its engine: recursive least squares with forgetting, bounded, and scored.

Promise: coefficients stay finite, non-negative and bounded whatever is observed; garbage is ignored and
counted. Not thread-safe: one owner observes; `model` and `factor` are cheap to read.

Recursive least squares is textbook (Ljung, System Identification, 11.2); it forgets only in the direction of
what is observed (Kulhavy, 1987), so that an engine that does one thing keeps what it knew of others.
"""

from collections import deque
from math import isfinite
from typing import Final

from superinfer_core.prediction.recent import RecentValues
from superinfer_core.prediction.step_model import StepFacts, StepModel

_SCALES: Final = (1.0, 10.0, 10_000.0, 1_000.0, 1_000_000.0)
"""Feature scales: coefficients times scale are of the order of milliseconds."""
_USUAL: Final = (1.0, 1.0, 1.0, 30.0, 60.0)
"""Scaled coefficients of small models: doubt is never less than a share of these, so that a profile without
a term can learn it."""
_NOISE: Final = 0.1
_LARGEST: Final = 1000.0
_LEAST_DOUBT: Final = 1e-12
_MAX_STEP_MS: Final = 600_000.0
_BLOCK_STEPS: Final = 8
_BLOCK_MS: Final = 200.0
"""A block is at least so much predicted time: a stall of the machine adds, it does not multiply, so over a
few short steps it would look like a factor of ten that no total ever shows."""
_HISTORY: Final = 512
_PRIOR_BLOCKS: Final = 100
"""What the prior factor is worth at first; a quarter less per block seen. With few blocks the greatest
ratio is no estimate of a high quantile; with many a prior would only bias it."""
_MOST_FACTOR: Final = 3.0
_FADE_MS: Final = 5_000.0
"""Without new steps evidence halves so often. Refusing everything must not be a state nobody can leave: an
engine that is given nothing shows nothing, and what it showed last says less and less."""


class _Ratios:
    """Recent ratios of actual to predicted."""

    __slots__ = ("_recent",)

    def __init__(self, size: int) -> None:
        self._recent = RecentValues(size)

    def add(self, ratio: float) -> None:
        self._recent.add(ratio)

    def quantile(self, q: float, prior: float) -> float:
        """The quantile of what was seen and of some blocks that took `prior`: fewer, the more was seen."""
        n = len(self._recent)
        believed = max(0, _PRIOR_BLOCKS - n // 4)
        below = self._recent.count_below(prior)
        rank = min(n + believed - 1, max(0, int(q * (n + believed))))
        if rank < below:
            return self._recent.ascending[rank]
        if rank < below + believed:
            return prior
        return self._recent.ascending[rank - believed]

    def share_within(self, ratio: float) -> float | None:
        n = len(self._recent)
        return self._recent.count_below(ratio + 1e-12) / n if n else None


class OnlineStepModel:
    """Starts from `initial`, follows what steps really take.

    Args:
        initial: the fitted profile.
        forgetting: weight of the past per observation (1 never forgets).
        doubt: how wrong the initial coefficients may be, as a share of each.
    """

    def __init__(self, initial: StepModel, *, forgetting: float = 0.998, doubt: float = 0.3) -> None:
        if not 0.5 < forgetting <= 1.0:
            msg = f"forgetting must be above 0.5 and at most 1, got {forgetting}"
            raise ValueError(msg)
        self._forgetting = forgetting
        self._theta = [c * s for c, s in zip(initial.coefficients, _SCALES, strict=True)]
        self._bounds = [max(20.0 * t, _LARGEST) for t in self._theta]
        # Errors are relative to the step, so noise is about a tenth: variances are in units of its square.
        self._start = [(doubt * max(t, d) / _NOISE) ** 2 for t, d in zip(self._theta, _USUAL, strict=True)]
        self._p = self._no_knowledge()
        self._model = initial
        self._blocks = _Ratios(_HISTORY)
        self._block = [0.0, 0.0, 0]
        self._errors: deque[float] = deque(maxlen=_HISTORY)
        self._covered: dict[float, deque[bool]] = {}
        self.observed = 0
        self.ignored = 0

    @property
    def model(self) -> StepModel:
        """The model as of the last observation."""
        return self._model

    @property
    def mape(self) -> float:
        """Mean absolute error of recent steps as a share of the actual time; NaN before the first."""
        return sum(self._errors) / len(self._errors) if self._errors else float("nan")

    def coverage(self, quantile: float) -> float:
        """Share of recent blocks of steps within their prediction at `quantile`; NaN before any."""
        seen = self._covered.get(quantile)
        if seen is None:
            self._covered[quantile] = deque(maxlen=_HISTORY)
            share = self._blocks.share_within(self.factor(quantile))
            return float("nan") if share is None else share
        return sum(seen) / len(seen) if seen else float("nan")

    def factor(self, quantile: float, *, idle_ms: float = 0.0) -> float:
        """What a predicted total is multiplied by to hold with probability `quantile`.

        Taken from sums over blocks of steps, not from single steps: noise of steps cancels in a total, so a
        quantile of the whole is less than the sum of quantiles. `idle_ms` is how long no step was seen.
        """
        prior = 1.0 + 0.1 * quantile
        ratio = min(_MOST_FACTOR, max(0.5, self._blocks.quantile(quantile, prior)))
        if idle_ms <= 0:
            return ratio
        fade: float = 0.5 ** min(64.0, idle_ms / _FADE_MS)
        return prior + (ratio - prior) * fade

    def observe(self, facts: StepFacts) -> bool:
        """Learn from one step; False when the facts were unusable."""
        x = self._features(facts)
        if x is None:
            self.ignored += 1
            return False
        y = facts.step_ms
        predicted = max(1e-6, sum(a * b for a, b in zip(self._theta, x, strict=True)))
        self._score(y, predicted)
        self._update(x, min(y, 20 * predicted), predicted)
        self.observed += 1
        return True

    def _no_knowledge(self) -> list[list[float]]:
        """The covariance at the start: each coefficient as doubtful as it may be, none tied to another."""
        return [[(self._start[i] if i == j else 0.0) for j in range(5)] for i in range(5)]

    def _features(self, f: StepFacts) -> tuple[float, ...] | None:
        raw = (1.0, f.decode_seqs, f.decode_context_tokens, f.prefill_tokens, f.prefill_context_tokens2)
        try:
            if not 0 < f.step_ms <= _MAX_STEP_MS:
                return None
            x = tuple(v / s for v, s in zip(raw, _SCALES, strict=True))
        except (OverflowError, TypeError):
            return None
        if not all(isfinite(v) and 0 <= v < 1e6 for v in x) or (x[1] == 0 and x[3] == 0):
            return None
        return x

    def _score(self, actual: float, predicted: float) -> None:
        self._errors.append(abs(predicted - actual) / actual)
        block = self._block
        block[0] += actual
        block[1] += predicted
        block[2] += 1
        if block[2] >= _BLOCK_STEPS and block[1] >= _BLOCK_MS:
            ratio = block[0] / block[1]
            for q, seen in self._covered.items():
                seen.append(ratio <= self.factor(q))
            self._blocks.add(ratio)
            self._block = [0.0, 0.0, 0]

    def _update(self, x: tuple[float, ...], y: float, predicted: float) -> None:
        """Weighted recursive least squares: relative errors, so short steps count as much as long."""
        p, theta = self._p, self._theta
        x = tuple(v / predicted for v in x)
        px = [sum(row[j] * x[j] for j in range(5)) for row in p]
        doubt = sum(a * b for a, b in zip(x, px, strict=True))
        if not isfinite(doubt) or not doubt > _LEAST_DOUBT:
            self._p = self._no_knowledge()
            return
        error = y / predicted - sum(a * b for a, b in zip(theta, x, strict=True))
        step = error / (1.0 + doubt)
        self._theta = [
            min(bound, max(0.0, t + v * step)) for t, v, bound in zip(theta, px, self._bounds, strict=True)
        ]
        # Forget only along what this step says something about. Forgetting everywhere makes the doubt about
        # what is not seen (an engine that only decodes) grow without end, and bounding it afterwards turns
        # it into doubt about what is seen: the model ran away on equal steps.
        less = (1.0 - (1.0 / self._forgetting - 1.0) / doubt) / (1.0 + doubt)
        for i in range(5):
            for j in range(i, 5):
                p[i][j] = p[j][i] = p[i][j] - less * px[i] * px[j]
        self._model = StepModel(*(t / s for t, s in zip(self._theta, _SCALES, strict=True)))
