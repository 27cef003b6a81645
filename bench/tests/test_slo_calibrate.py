"""Unloaded times: a curve through what was measured, never falling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_bench.slo.calibrate import fit_curve

LENGTHS = [16, 64, 256, 1024, 2048, 4096, 8000]


def test_an_exact_parabola_is_found() -> None:
    times = [10 + 0.05 * p + 2e-5 * p * p for p in LENGTHS]
    assert fit_curve(LENGTHS, times) == pytest.approx((10, 0.05, 2e-5), rel=1e-3)


def test_one_disturbed_measurement_moves_the_rest_little() -> None:
    times = [10 + 0.05 * p for p in LENGTHS]
    times[2] *= 3
    constant, linear, square = fit_curve(LENGTHS, times)
    at_16, at_8000 = (constant + p * (linear + p * square) for p in (16, 8000))
    assert at_16 < 2 * (10 + 0.05 * 16)
    assert at_8000 == pytest.approx(10 + 0.05 * 8000, rel=0.5)


@given(st.lists(st.floats(0.1, 1e5), min_size=7, max_size=7))
def test_any_measurement_gives_a_curve_that_never_falls(times: list[float]) -> None:
    curve = fit_curve(LENGTHS, times)
    assert all(c >= 0 for c in curve)
    assert sum(curve) > 0
