"""Output lengths: quantiles within the sketch's error, conditioned, capped, bounded."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.prediction.lengths import LengthSketch, OutputLengths


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9, 0.99])
def test_a_quantile_is_within_ten_percent(q: float) -> None:
    rnd = random.Random(1)
    lengths = sorted(max(1, int(rnd.lognormvariate(5, 1))) for _ in range(1500))
    sketch = LengthSketch()
    for n in lengths:
        sketch.observe(n)
    assert sketch.quantile(q, cap=10**6) == pytest.approx(lengths[int(q * len(lengths))], rel=0.12)


@given(
    st.lists(st.integers(-5, 10**7), max_size=60),
    st.floats(0, 1),
    st.integers(0, 5000),
    st.integers(1, 10**7),
)
def test_the_answer_lies_between_generated_and_the_cap(
    seen: list[int], q: float, generated: int, cap: int
) -> None:
    sketch = LengthSketch()
    for n in seen:
        sketch.observe(n)
    answer = sketch.quantile(q, generated=generated, cap=cap)
    assert generated + 1 <= answer <= max(cap, generated + 1)


def test_what_is_generated_already_rules_out_shorter_answers() -> None:
    sketch = LengthSketch()
    for n in [10] * 90 + [500] * 10:
        sketch.observe(n)
    assert sketch.quantile(0.5, cap=1000) < 12
    assert sketch.quantile(0.5, generated=50, cap=1000) > 450


def test_merged_sketches_answer_as_one() -> None:
    a, b, both = LengthSketch(), LengthSketch(), LengthSketch()
    for i in range(1, 400):
        (a if i % 2 else b).observe(i)
        both.observe(i)
    a.merge(b)
    assert [a.quantile(q / 10, cap=999) for q in range(11)] == [
        both.quantile(q / 10, cap=999) for q in range(11)
    ]


def test_a_contract_with_few_answers_borrows_from_all_and_contracts_are_bounded() -> None:
    lengths = OutputLengths(max_contracts=2, min_observations=20)
    assert lengths.expected("new", 0.9, 0, 777) == 777
    for _ in range(50):
        lengths.observe("long", 900)
        lengths.observe("short", 10)
        lengths.observe("third", 10)
    assert lengths.expected("short", 0.9, 0, 5000) < 12
    assert lengths.expected("long", 0.9, 0, 5000) > 800
    assert len(lengths.summary()) <= 3
