"""Quotas: never more than promised, always with a time to come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.contract.effective import Quota
from superinfer_core.contract.quota import QuotaRefusal, QuotaState


def refused(state: QuotaState, now_ms: float, tokens: int = 0) -> QuotaRefusal:
    refusal = state.take(now_ms, estimated_tokens=tokens)
    assert refusal is not None
    return refusal


def test_without_limits_everything_passes() -> None:
    state = QuotaState(Quota(), now_ms=0)
    assert all(state.take(0, estimated_tokens=10**9) is None for _ in range(1000))


def test_a_second_of_requests_passes_at_once_and_the_next_is_told_when() -> None:
    state = QuotaState(Quota(requests_per_second=4), now_ms=0)
    assert [state.take(0) for _ in range(4)] == [None] * 4
    refusal = refused(state, 0)
    assert refusal.limit == "requestsPerSecond"
    assert refusal.allowed == "4 requests per second"
    assert refusal.retry_after_ms == pytest.approx(250)
    assert state.take(refusal.retry_after_ms) is None


def test_concurrency_frees_a_place_when_a_request_ends() -> None:
    state = QuotaState(Quota(concurrency=1), now_ms=0)
    assert state.take(0) is None
    assert refused(state, 10).limit == "concurrency"
    assert refused(state, 10).retry_after_ms > 0
    state.finish(20, taken_ms=0)
    assert state.in_flight == 0
    assert state.take(20) is None


def test_retry_after_of_concurrency_follows_how_long_requests_take() -> None:
    state = QuotaState(Quota(concurrency=1), now_ms=0)
    now = 0.0
    for _ in range(100):
        assert state.take(now) is None
        state.finish(now + 5000, taken_ms=now)
        now += 5000
    assert state.take(now) is None
    assert refused(state, now).retry_after_ms == pytest.approx(5000, rel=0.01)


def test_tokens_are_reserved_by_estimate_and_settled_by_what_was_used() -> None:
    state = QuotaState(Quota(tokens_per_minute=600), now_ms=0)
    assert state.take(0, estimated_tokens=600) is None
    assert refused(state, 0, 1).limit == "tokensPerMinute"
    state.finish(0, taken_ms=0, estimated_tokens=600, actual_tokens=100)
    assert state.take(0, estimated_tokens=500) is None
    assert refused(state, 0, 1).retry_after_ms == pytest.approx(100)


def test_an_underestimate_is_paid_back_before_anything_else_passes() -> None:
    state = QuotaState(Quota(tokens_per_minute=60), now_ms=0)
    assert state.take(0, estimated_tokens=10) is None
    state.finish(0, taken_ms=0, estimated_tokens=10, actual_tokens=90)
    assert refused(state, 0, 1).retry_after_ms == pytest.approx(31_000)
    assert state.take(31_000, estimated_tokens=1) is None


def test_a_request_larger_than_a_minute_passes_only_when_the_minute_is_untouched() -> None:
    state = QuotaState(Quota(tokens_per_minute=60), now_ms=0)
    assert state.take(0, estimated_tokens=1000) is None
    assert refused(state, 0, 1000).retry_after_ms == pytest.approx(1_000_000)


def test_a_refusal_takes_nothing() -> None:
    state = QuotaState(Quota(requests_per_second=2, concurrency=1), now_ms=0)
    assert state.take(0) is None
    for _ in range(50):
        assert refused(state, 0).limit == "concurrency"
    state.finish(0, taken_ms=0)
    assert state.take(0) is None


def test_the_longest_wait_of_several_limits_is_told() -> None:
    state = QuotaState(Quota(requests_per_second=10, tokens_per_minute=60), now_ms=0)
    for _ in range(10):
        assert state.take(0, estimated_tokens=6) is None
    refusal = refused(state, 0, 60)
    assert (refusal.limit, refusal.retry_after_ms) == ("tokensPerMinute", pytest.approx(60_000))


def test_a_clock_that_steps_back_mints_nothing() -> None:
    state = QuotaState(Quota(requests_per_second=1), now_ms=10_000)
    assert state.take(10_000) is None
    assert state.take(5_000) is not None
    assert state.take(10_000) is not None
    assert state.take(11_000) is None


def test_an_edit_applies_to_what_comes_and_keeps_what_runs() -> None:
    state = QuotaState(Quota(concurrency=3), now_ms=0)
    assert state.take(0) is None
    assert state.take(0) is None
    state.update(0, quota=Quota(concurrency=2, requests_per_second=1))
    assert state.in_flight == 2
    assert refused(state, 0).limit == "concurrency"
    state.finish(0, taken_ms=0)
    assert state.take(0) is None
    state.finish(0, taken_ms=0)
    assert refused(state, 0).limit == "requestsPerSecond"


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
def test_replicas_together_hold_the_quota_to_within_their_burst(replicas: int) -> None:
    quota = Quota(requests_per_second=10, concurrency=5)
    states = [QuotaState(quota, now_ms=0, replicas=replicas) for _ in range(replicas)]
    passed = sum(state.take(0) is None for state in states for _ in range(20))
    assert 5 <= passed <= 5 + replicas - 1


def test_more_replicas_are_no_present_to_what_was_already_used() -> None:
    state = QuotaState(Quota(requests_per_second=10), now_ms=0)
    for _ in range(10):
        assert state.take(0) is None
    state.update(0, replicas=1)
    state.update(0, replicas=2)
    assert state.take(0) is not None


arrivals = st.lists(st.floats(min_value=0, max_value=400), max_size=120)


@given(st.integers(1, 50), arrivals)
def test_no_interval_holds_more_requests_than_a_burst_and_the_rate(rate: int, gaps: list[float]) -> None:
    state = QuotaState(Quota(requests_per_second=rate), now_ms=0)
    now, passed = 0.0, []
    for gap in gaps:
        now += gap
        if state.take(now) is None:
            passed.append(now)
            state.finish(now, taken_ms=now)
    for i, start in enumerate(passed):
        for j in range(i, len(passed)):
            assert j - i + 1 <= max(1, rate) + rate * (passed[j] - start) / 1000 + 1e-6


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.floats(0, 5_000), st.integers(0, 3_000), st.integers(0, 3_000)), max_size=60),
)
def test_tokens_used_never_exceed_the_rate_by_more_than_a_minute_and_one_request(
    per_minute: int, requests: list[tuple[float, int, int]]
) -> None:
    state = QuotaState(Quota(tokens_per_minute=per_minute), now_ms=0)
    now, used, largest = 0.0, 0, 0
    for gap, estimate, actual in requests:
        now += gap
        if state.take(now, estimated_tokens=estimate) is None:
            state.finish(now, taken_ms=now, estimated_tokens=estimate, actual_tokens=actual)
            used, largest = used + actual, max(largest, actual)
    assert used <= per_minute + per_minute * now / 60_000 + largest + 1e-6


@given(st.integers(1, 100), st.lists(st.floats(0, 2_000), max_size=50))
def test_coming_back_when_told_to_always_works(rate: int, gaps: list[float]) -> None:
    state = QuotaState(Quota(requests_per_second=rate, tokens_per_minute=rate * 100), now_ms=0)
    now = 0.0
    for gap in gaps:
        now += gap
        refusal = state.take(now, estimated_tokens=50)
        if refusal is not None:
            now += refusal.retry_after_ms + 1e-6
            assert state.take(now, estimated_tokens=50) is None
        state.finish(now, taken_ms=now, estimated_tokens=50, actual_tokens=50)
