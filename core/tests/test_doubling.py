"""Doubling waits: the first, twice it, and the bound however long something fails."""

import pytest

from superinfer_core.doubling import doubled


@pytest.mark.parametrize(("times", "wait"), [(1, 5.0), (2, 10.0), (3, 20.0), (4, 30.0), (10**9, 30.0)])
def test_a_wait_doubles_up_to_its_bound(times: int, wait: float) -> None:
    assert doubled(5.0, times, 30.0) == wait


def test_a_tiny_first_wait_reaches_an_hour_too() -> None:
    assert doubled(1e-6, 10_000, 3600.0) == 3600.0
