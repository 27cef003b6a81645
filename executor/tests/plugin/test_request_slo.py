"""Promises in extra_args: what is written is read back, and garbage is refused by name."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.slo import BEST_EFFORT_TIER_RANK, Rank, RequestSlo
from superinfer_executor.plugin.request_slo import (
    KEYS,
    NO_PROMISE,
    RESUME_TOKEN_IDS,
    EnginePromise,
    InvalidRequestSlo,
    parse_promise,
    promise_extra_args,
)

NUMBER_KEYS = sorted(key for key in KEYS if key.endswith("_ms"))


@pytest.mark.parametrize(
    "extra_args",
    [
        pytest.param(None, id="none"),
        pytest.param({}, id="empty"),
        pytest.param({"kv_transfer_params": {"x": 1}, "other": "slo"}, id="keys of other people"),
    ],
)
def test_without_our_keys_a_request_is_best_effort(extra_args: dict[str, Any] | None) -> None:
    assert parse_promise(extra_args) == NO_PROMISE
    assert NO_PROMISE.slo.rank.sheddable


def test_the_four_public_keys_are_enough() -> None:
    promise = parse_promise({"slo_ttft_ms": 300, "slo_itl_ms": 40.5, "slo_e2e_ms": 2_000, "slo_rank": 0})
    assert promise.slo == RequestSlo(contract="", rank=Rank(0), ttft_ms=300.0, itl_ms=40.5, e2e_ms=2_000.0)


def test_a_target_without_a_rank_goes_after_every_tier_that_says_what_it_is() -> None:
    slo = parse_promise({"slo_ttft_ms": 1}).slo
    assert slo.rank >= Rank(2)
    assert not slo.rank.sheddable


def test_a_rank_without_a_target_promises_nothing() -> None:
    slo = parse_promise({"slo_rank": 1}).slo
    assert slo.best_effort
    assert slo.rank == Rank(1)


@pytest.mark.parametrize("key", NUMBER_KEYS)
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(-1, id="negative"),
        pytest.param(math.nan, id="NaN"),
        pytest.param(math.inf, id="infinite"),
        pytest.param(10**400, id="10^400"),
        pytest.param(1e300, id="longer than a day"),
        pytest.param("300", id="text"),
        pytest.param("300ms", id="text with a unit"),
        pytest.param(True, id="a truth value"),
        pytest.param([300], id="a list"),
        pytest.param({}, id="a mapping"),
    ],
)
def test_a_duration_that_is_none_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(InvalidRequestSlo, match=key) as refused:
        parse_promise({key: value})
    assert refused.value.fix
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("key", ["slo_ttft_ms", "slo_itl_ms", "slo_e2e_ms"])
def test_zero_is_not_most_urgent(key: str) -> None:
    with pytest.raises(InvalidRequestSlo, match=key):
        parse_promise({key: 0})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("slo_rank", -1),
        ("slo_rank", 0.5),
        ("slo_rank", "gold"),
        ("slo_rank", 10**9),
        ("slo_priority", 1.5),
        ("slo_budget_left", 1.1),
        ("slo_contract_holds", "yes"),
        ("slo_best_effort", 2),
        ("slo_contract", 7),
        ("slo_contract", "x" * 1_000),
        ("slo_expected_output_tokens", 0),
        ("slo_tttft_ms", 300),
        (RESUME_TOKEN_IDS, "5,6"),
        (RESUME_TOKEN_IDS, 5),
        (RESUME_TOKEN_IDS, [5, -1]),
        (RESUME_TOKEN_IDS, [5, 1.5]),
        (RESUME_TOKEN_IDS, [math.nan]),
        (RESUME_TOKEN_IDS, [10**30]),
        (RESUME_TOKEN_IDS, [True]),
        (RESUME_TOKEN_IDS, [None]),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(InvalidRequestSlo) as refused:
        parse_promise({key: value})
    assert refused.value.field == key


milliseconds = st.floats(min_value=0.001, max_value=86_400_000.0)
promises = st.builds(
    EnginePromise,
    slo=st.builds(
        RequestSlo,
        contract=st.sampled_from(["", "shop/checkout-chat"]),
        rank=st.builds(Rank, st.integers(0, BEST_EFFORT_TIER_RANK), st.integers(-1_000, 1_000)),
        ttft_ms=milliseconds,
        itl_ms=st.none() | milliseconds,
        e2e_ms=st.none() | milliseconds,
        max_jitter_ms=st.none() | milliseconds,
        best_effort=st.booleans(),
        contract_holds=st.booleans(),
        budget_left=st.floats(0, 1),
    ),
    elapsed_ms=st.floats(0, 1_000),
    since_first_token_ms=st.none() | st.floats(0, 1_000),
    expected_output_tokens=st.none() | st.integers(1, 10_000),
    resume_token_ids=st.lists(st.integers(0, 200_000), max_size=20).map(tuple),
)


@given(promises)
def test_what_is_written_is_read_back(promise: EnginePromise) -> None:
    assert parse_promise(promise_extra_args(promise)) == promise


anything = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.floats())
)


@given(st.dictionaries(st.sampled_from([*sorted(KEYS), RESUME_TOKEN_IDS]), anything))
def test_any_values_are_read_or_refused(extra_args: dict[str, Any]) -> None:
    refused: str | None = None
    try:
        parse_promise(extra_args)
    except InvalidRequestSlo as error:
        refused = error.field
    assert refused is None or refused in extra_args
