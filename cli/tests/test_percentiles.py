"""Percentiles by nearest rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer.percentiles import nearest_rank

HUNDRED = [float(n) for n in range(1, 101)]


@pytest.mark.parametrize(
    ("values", "share", "want"),
    [
        pytest.param(HUNDRED, 0.99, 99.0, id="99 of 100"),
        pytest.param(HUNDRED, 0.07, 7.0, id="rounding moves no rank"),
        pytest.param(HUNDRED, 0.0, 1.0, id="the least"),
        pytest.param(HUNDRED, 1.0, 100.0, id="the greatest"),
        pytest.param([3.0, 1.0, 2.0], 0.5, 2.0, id="in any order"),
        pytest.param([7.0], 0.99, 7.0, id="one value is every percentile"),
        pytest.param([], 0.5, 0.0, id="no values"),
    ],
)
def test_the_value_of_a_rank(values: list[float], share: float, want: float) -> None:
    assert nearest_rank(values, share) == want


@given(st.lists(st.integers(-1_000, 1_000), min_size=1, max_size=200), st.integers(1, 100))
def test_it_is_the_least_value_that_enough_do_not_exceed(values: list[int], percent: int) -> None:
    found = nearest_rank(values, percent / 100)
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)
