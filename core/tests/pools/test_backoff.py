"""When a slot whose pods fail is tried again."""

import pytest

from superinfer_core.placement import ExecutorPhase
from superinfer_core.pools.backoff import CLEAN_AFTER_S, Backoff, Sighting, observe
from superinfer_core.pools.waits import LONGEST_WAIT_S

SLOT = ("shop/p", 0)


def pod(uid, phase):
    return Sighting(SLOT, f"u{uid}", phase)


def failures(count, *, every_s=0.0):
    backoff, now = Backoff(), 1000.0
    for number in range(count):
        backoff = observe(backoff, [pod(number, ExecutorPhase.FAILED)], now)
        now += every_s
    return backoff, now - every_s


class TestBackoff:
    """When a slot that failed is tried again."""

    @pytest.mark.parametrize(
        ("count", "want_s"),
        [
            pytest.param(1, 0, id="the first failure waits for nothing"),
            pytest.param(2, 5, id="the second a little"),
            pytest.param(3, 10, id="the third twice as long"),
            pytest.param(60, LONGEST_WAIT_S, id="and never longer than the longest"),
        ],
    )
    def test_waits_grow_up_to_a_bound(self, count, want_s):
        backoff, now = failures(count)
        assert backoff.wait_s(SLOT, now) == want_s

    def test_one_failed_pod_counts_once_however_often_it_is_seen(self):
        backoff = Backoff()
        for _ in range(10):
            backoff = observe(backoff, [pod(1, ExecutorPhase.FAILED)], 1000.0)
        assert backoff.wait_s(SLOT, 1000.0) == 0

    def test_serving_for_a_while_clears_the_record(self):
        backoff, now = failures(5)
        serving = [pod(9, ExecutorPhase.READY)]
        backoff = observe(backoff, serving, now + 400)
        assert SLOT in backoff.records, "ready for a moment proves nothing"
        backoff = observe(backoff, serving, now + 400 + CLEAN_AFTER_S)
        assert SLOT not in backoff.records

    def test_a_slot_that_is_never_filled_again_is_forgotten(self):
        backoff, now = failures(3)
        assert observe(backoff, [], now + 20 * LONGEST_WAIT_S).records == {}

    def test_it_says_when_the_next_wait_ends(self):
        backoff, now = failures(2)
        assert backoff.next_at(now) == now + 5
        assert backoff.next_at(now + 6) is None
