"""Pods the API server would not take: when they are tried again."""

import pytest

from superinfer_core.pools.refused import refused_again
from superinfer_core.pools.waits import LONGEST_WAIT_S


def refused(times, revision="r"):
    found, now = None, 0.0
    for _ in range(times):
        found = refused_again(found, revision=revision, reason="Forbidden", message="quota", now=now)
        now = found.until
    return found


@pytest.mark.parametrize(("times", "want_s"), [(1, 5), (2, 10), (3, 20), (40, LONGEST_WAIT_S)])
def test_tries_come_later_each_time_up_to_a_bound(times, want_s):
    before = refused(times - 1) if times > 1 else None
    after = refused_again(before, revision="r", reason="Forbidden", message="quota", now=1000.0)
    assert after.until - 1000.0 == want_s


def test_an_edit_is_tried_at_once():
    found = refused(5)
    assert found.holds("r", found.until - 1)
    assert not found.holds("edited", found.until - 1)
    assert not found.holds("r", found.until)
