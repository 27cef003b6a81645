"""How often and how long a cut request is tried again."""

import pytest

from superinfer_core.failover.retry import RetryPolicy

POLICY = RetryPolicy(attempts=2, within_ms=1000, first_pause_ms=20, longest_pause_ms=100)


@pytest.mark.parametrize(("looks", "pause_ms"), [(1, 20), (2, 40), (3, 80), (4, 100), (5000, 100)])
def test_pauses_double_up_to_a_bound(looks, pause_ms):
    assert POLICY.pause_ms(looks) == pause_ms


@pytest.mark.parametrize(
    ("failures", "waited_ms", "over"),
    [
        pytest.param(2, 999, False, id="still within both bounds"),
        pytest.param(3, 0, True, id="one failure too many"),
        pytest.param(1, 1000, True, id="waited too long"),
    ],
)
def test_giving_up(failures, waited_ms, over):
    assert POLICY.gives_up(failures_in_a_row=failures, waited_ms=waited_ms) is over
