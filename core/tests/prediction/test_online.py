"""The online model follows its engine, stays bounded, ignores garbage and knows how wrong it is."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_core.prediction.online import OnlineStepModel
from superinfer_core.prediction.step_model import StepFacts, StepModel

TRUTH = StepModel(5.0, 0.10, 0.00005, 0.045, 7e-5)
GUESS = StepModel(10.0, 0.2, 0.0, 0.1, 0.0)


def steps(count: int, truth: StepModel, noise: float = 0.05, seed: int = 1) -> list[StepFacts]:
    rnd = random.Random(seed)
    made = []
    for _ in range(count):
        seqs, chunk, before = rnd.randint(1, 32), rnd.choice([0, 0, 100, 500, 1500]), rnd.randint(0, 3000)
        facts = StepFacts(1.0, chunk, chunk * (before + chunk / 2), seqs, seqs * rnd.randint(100, 2000))
        made.append(
            StepFacts(
                truth.predict(facts) * max(0.5, rnd.gauss(1, noise)),
                *(
                    getattr(facts, f)
                    for f in (
                        "prefill_tokens",
                        "prefill_context_tokens2",
                        "decode_seqs",
                        "decode_context_tokens",
                    )
                ),
            )
        )
    return made


def test_from_a_wrong_guess_it_comes_to_the_engine_in_some_hundred_steps() -> None:
    online = OnlineStepModel(GUESS)
    for facts in steps(1200, TRUTH):
        online.observe(facts)
    assert online.mape < 0.08
    probe = steps(50, TRUTH, noise=0.0, seed=9)
    errors = [abs(online.model.predict(f) / f.step_ms - 1) for f in probe]
    assert sum(errors) / len(errors) < 0.05


def test_it_follows_an_engine_that_becomes_slower() -> None:
    online = OnlineStepModel(TRUTH)
    slower = StepModel(*(c * 1.5 for c in TRUTH.coefficients))
    for facts in steps(1500, slower):
        online.observe(facts)
    probe = steps(50, slower, noise=0.0, seed=9)
    assert sum(online.model.predict(f) for f in probe) == pytest.approx(
        sum(f.step_ms for f in probe), rel=0.05
    )


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_its_quantiles_are_calibrated(quantile: float) -> None:
    online = OnlineStepModel(TRUTH)
    for facts in steps(5000, TRUTH, noise=0.2):
        online.observe(facts)
    online.coverage(quantile)  # from here on it is scored ahead of time
    for facts in steps(4000, TRUTH, noise=0.2, seed=5):
        online.observe(facts)
    assert online.coverage(quantile) == pytest.approx(quantile, abs=0.06)


def test_a_quantile_of_the_whole_is_less_than_the_sum_of_quantiles() -> None:
    online = OnlineStepModel(TRUTH)
    for facts in steps(3000, TRUTH, noise=0.2):
        online.observe(facts)
    assert 1.0 < online.factor(0.99) < 1.3  # a single step's would be 1.47


garbage = st.one_of(st.floats(), st.integers(), st.sampled_from([10**400, -1, 0, math.inf, math.nan]))


@settings(max_examples=60)
@given(st.lists(st.builds(StepFacts, garbage, garbage, garbage, garbage, garbage), max_size=40))
def test_garbage_never_breaks_it(facts: list[StepFacts]) -> None:
    online = OnlineStepModel(TRUTH)
    for f in facts:
        online.observe(f)
    assert online.observed + online.ignored == len(facts)
    assert all(math.isfinite(c) and c >= 0 for c in online.model.coefficients)
    assert 0.5 <= online.factor(0.99) <= 10


def test_an_engine_that_only_decodes_does_not_blow_it_up() -> None:
    online = OnlineStepModel(TRUTH)
    for _ in range(20_000):
        online.observe(StepFacts(5.1, 0, 0.0, 1, 100))
    assert online.model.step_ms(decode_seqs=1, decode_context_tokens=100) == pytest.approx(5.1, rel=0.01)
    assert online.model.per_prefill_token_ms == pytest.approx(0.045, rel=0.5)
