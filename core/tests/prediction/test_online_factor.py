"""How sure predictions are: one stall must not end admission, and silence must not keep it ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.prediction.online import OnlineStepModel
from superinfer_core.prediction.step_model import StepFacts, StepModel

MODEL = StepModel(3.0, 0.2)
DECODE_MS = 3.0 + 0.2 * 8


def decode(step_ms: float) -> StepFacts:
    return StepFacts(step_ms, 0, 0.0, 8, 100)


def steps(model: OnlineStepModel, count: int, step_ms: float = DECODE_MS) -> None:
    for _ in range(count):
        model.observe(decode(step_ms))


def test_nothing_seen_is_a_modest_margin() -> None:
    assert OnlineStepModel(MODEL).factor(0.99) == pytest.approx(1.099)


def test_one_stall_among_few_steps_changes_little() -> None:
    """Seen in a benchmark: a 270 ms stall in the first second made everyone infeasible from then on."""
    model = OnlineStepModel(MODEL)
    steps(model, 100)
    model.observe(decode(270.0))
    steps(model, 100)
    assert model.factor(0.99) < 1.2


def test_a_slower_engine_is_noticed_until_the_model_has_followed() -> None:
    model = OnlineStepModel(MODEL)
    for number in range(6000):
        model.observe(decode(DECODE_MS * (2.0 if number % 200 < 40 else 1.0)))
    assert model.factor(0.99) > 1.15


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_what_was_seen_fades_while_nothing_is_seen(quantile: float) -> None:
    model = OnlineStepModel(MODEL)
    for number in range(6000):
        model.observe(decode(DECODE_MS * (4.0 if number % 100 < 50 else 0.5)))
    fresh = OnlineStepModel(MODEL).factor(quantile)
    seen, later, much_later = (model.factor(quantile, idle_ms=t) for t in (0.0, 10_000.0, 600_000.0))
    assert abs(later - fresh) <= abs(seen - fresh)
    assert much_later == pytest.approx(fresh, abs=1e-3)


@given(
    st.lists(st.floats(0.01, 1e5), max_size=200),
    st.floats(0.01, 0.999),
    st.floats(0.01, 0.999),
    st.floats(0, 1e9),
)
def test_factors_are_bounded_and_rise_with_the_quantile(
    times: list[float], q1: float, q2: float, idle_ms: float
) -> None:
    model = OnlineStepModel(MODEL)
    for step_ms in times:
        model.observe(decode(step_ms))
    low, high = (model.factor(q, idle_ms=idle_ms) for q in sorted((q1, q2)))
    assert 0.5 <= low <= high + 1e-9 <= 3.0 + 1e-6


def test_equal_steps_for_long_do_not_run_away() -> None:
    """Seen once: steps of 4.6 ms were predicted as 800 ms after some thousand of them."""
    model = OnlineStepModel(MODEL)
    steps(model, 20_000, DECODE_MS * 1.3)
    assert model.model.predict(decode(1.0)) == pytest.approx(DECODE_MS * 1.3, rel=0.02)
    assert model.model.per_prefill_token_ms == MODEL.per_prefill_token_ms


def test_a_slower_engine_is_followed_after_long_equal_steps() -> None:
    model = OnlineStepModel(MODEL)
    steps(model, 20_000)
    steps(model, 3000, DECODE_MS * 1.5)
    assert model.model.predict(decode(1.0)) == pytest.approx(DECODE_MS * 1.5, rel=0.03)
