"""From measured steps to a step model and how far off its totals are. Pure.

Least squares of the relative error, coefficients not negative: of the sixteen subsets of the four varying
terms, the best whose coefficients are all positive (the exact solution of non-negative least squares for so
few terms, and deterministic).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from superinfer.percentiles import nearest_rank
from superinfer_core.prediction.step_model import StepFacts, StepModel

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)
BLOCK_STEPS: Final = 8
LEAST_BASE_MS: Final = 0.001
_TERMS: Final = 5

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A step model and its error on the steps it was fitted to.

    Attributes:
        mape: mean absolute error of a step as a share of its time.
        residuals: (quantile, factor): a total takes at most factor times its prediction that often.
    """

    model: StepModel
    mape: float
    residuals: tuple[tuple[float, float], ...]
    steps: int


def fit_steps(runs: Sequence[Sequence[StepFacts]]) -> Fit:
    """Fit the steps of several runs; residuals are of totals within a run.

    Raises:
        ValueError: there is not one usable step.
    """
    usable = [[facts for facts in run if _usable(facts)] for run in runs]
    steps = [facts for run in usable for facts in run]
    if not steps:
        raise ValueError("no step reported usable facts; is the scheduler superinfer?")
    features = np.array([_features(facts) for facts in steps], dtype=np.float64)
    times = np.array([facts.step_ms for facts in steps], dtype=np.float64)
    coefficients = _non_negative(features / times[:, None], np.ones_like(times))
    model = StepModel.from_coefficients([max(LEAST_BASE_MS, coefficients[0]), *coefficients[1:]])
    errors = [abs(model.predict(facts) - facts.step_ms) / facts.step_ms for facts in steps]
    ratios = [ratio for run in usable for ratio in _block_ratios(run, model)]
    return Fit(model, float(np.mean(errors)), _quantiles(ratios), len(steps))


def _usable(facts: StepFacts) -> bool:
    works = facts.prefill_tokens > 0 or facts.decode_seqs > 0
    return works and isfinite(facts.step_ms) and facts.step_ms > 0


def _features(facts: StepFacts) -> tuple[float, ...]:
    return (
        1.0,
        facts.decode_seqs,
        facts.decode_context_tokens,
        facts.prefill_tokens,
        facts.prefill_context_tokens2,
    )


def _non_negative(features: Array, target: Array) -> list[float]:
    best: tuple[float, list[float]] = (float("inf"), [float(np.mean(target)), 0.0, 0.0, 0.0, 0.0])
    scale = np.maximum(np.abs(features).max(axis=0), 1e-12)
    for size in range(_TERMS):
        for chosen in combinations(range(1, _TERMS), size):
            columns = [0, *chosen]
            solution, *_ = np.linalg.lstsq(features[:, columns] / scale[columns], target, rcond=None)
            if (solution < 0).any():
                continue
            error = float(np.square(features[:, columns] / scale[columns] @ solution - target).sum())
            if error < best[0] * (1 - 1e-9):
                full = [0.0] * _TERMS
                for column, value in zip(columns, solution / scale[columns], strict=True):
                    full[column] = float(value)
                best = (error, full)
    return best[1]


def _block_ratios(run: Sequence[StepFacts], model: StepModel) -> list[float]:
    """Actual over predicted of consecutive blocks: noise of steps cancels in a total, as it will in use."""
    blocks = [run[start : start + BLOCK_STEPS] for start in range(0, len(run), BLOCK_STEPS)]
    return [
        sum(facts.step_ms for facts in block) / sum(model.predict(facts) for facts in block)
        for block in blocks
    ]


def _quantiles(ratios: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple((share, nearest_rank(ratios, share)) for share in QUANTILES)
