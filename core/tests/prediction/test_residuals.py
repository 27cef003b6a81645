"""Residuals answer quantiles of what they last saw, and nothing before they saw enough."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from superinfer_core.prediction.residuals import Residuals


def test_nothing_is_claimed_before_enough_was_seen():
    residuals = Residuals(enough=3)
    residuals.observe(10.0)
    residuals.observe(10.0)
    assert residuals.quantile(0.5) == 0.0
    residuals.observe(10.0)
    assert residuals.quantile(0.5) == 10.0


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -math.inf])
def test_nonsense_is_ignored(nonsense):
    residuals = Residuals(enough=1)
    residuals.observe(nonsense)
    assert residuals.quantile(0.5) == 0.0


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=100), q=st.floats(0, 1))
def test_the_answer_is_the_quantile_of_the_last_ones(values, q):
    residuals = Residuals(size=20, enough=1)
    for value in values:
        residuals.observe(value)
    last = sorted(values[-20:])
    answer = residuals.quantile(q)
    assert answer in last
    assert sum(value <= answer for value in last) >= q * len(last)
