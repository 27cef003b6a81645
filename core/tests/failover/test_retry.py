"""How long a cut request looks for an executor."""

import pytest

from superinfer_core.failover.retry import RetryPolicy

POLICY = RetryPolicy(within_ms=1000, first_pause_ms=20, longest_pause_ms=100)


@pytest.mark.parametrize(("looks", "pause_ms"), [(1, 20), (2, 40), (3, 80), (4, 100), (5000, 100)])
def test_pauses_double_up_to_a_bound(looks, pause_ms):
    assert POLICY.pause_ms(looks) == pause_ms


@pytest.mark.parametrize(("waited_ms", "over"), [(0, False), (999, False), (1000, True), (9000, True)])
def test_giving_up(waited_ms, over):
    assert POLICY.gives_up(waited_ms) is over
