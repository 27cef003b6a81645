"""Which of two executors a new request goes to, case by case."""

import pytest

from superinfer_core.scheduling.routing import preference


@pytest.mark.parametrize(
    ("one", "other", "within_ms"),
    [
        pytest.param((400, 1), (350, 19), 120_000, id="both keep it with ease: the emptier"),
        pytest.param((350, 19), (600, 1), 1_000, id="one keeps it with ease: that one"),
        pytest.param((700, 9), (900, 1), 1_000, id="neither with ease: the sooner"),
        pytest.param((1_200, 9), (1_500, 1), 1_000, id="both too late: the sooner"),
        pytest.param((10, 9), (20, 1), -50, id="its time is over: the sooner"),
        pytest.param((90, 1), (5, 3), None, id="nothing promised, both soon: the emptier"),
        pytest.param((120, 9), (150, 1), None, id="nothing promised, both slow: the sooner"),
        pytest.param((10, 2), (20, 2), 1_000, id="equally full: the sooner"),
    ],
)
def test_the_preferred_of_two(one, other, within_ms):
    """Each is (predicted TTFT, requests it has); names must not matter."""

    def order(name, of):
        return preference(name, ttft_ms=of[0], requests=of[1], within_ms=within_ms)

    assert order("b", one) < order("a", other)
    assert order("a", one) < order("b", other)


def test_the_name_decides_between_equals():
    equal = {"ttft_ms": 10.0, "requests": 1, "within_ms": None}
    assert preference("a", **equal) < preference("b", **equal)
