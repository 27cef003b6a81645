"""What clients may send in SLO headers, and what they are told when it cannot be a promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.contract.headers import (
    NO_HEADERS,
    SLO_HEADERS,
    HeaderSlo,
    parse_slo_headers,
    split_contract_id,
)
from superinfer_core.contract.problems import InvalidSlo
from superinfer_core.slo import MAX_TARGET_MS

NOW_MS = 1_764_000_000_000.0


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param({"content-type": "application/json"}, NO_HEADERS, id="no SLO header asks for nothing"),
        pytest.param(
            {"x-slo-contract-id": "checkout-chat"}, HeaderSlo("checkout-chat"), id="serviceID alone"
        ),
        pytest.param({"x-slo-contract-id": "shop/checkout"}, HeaderSlo("shop/checkout"), id="with namespace"),
        pytest.param({"x-slo-max-latency-ms": "1500"}, HeaderSlo(e2e_ms=1500), id="relative latency"),
        pytest.param({"x-slo-ttft-ms": " 250.5 "}, HeaderSlo(ttft_ms=250.5), id="decimals and blanks around"),
        pytest.param({"x-slo-tpot-ms": "40"}, HeaderSlo(itl_ms=40), id="tpot is our ITL"),
        pytest.param({"x-llm-d-slo-ttft-ms": "300"}, HeaderSlo(ttft_ms=300), id="llm-d alias of ttft"),
        pytest.param({"x-llm-d-slo-tpot-ms": "30"}, HeaderSlo(itl_ms=30), id="llm-d alias of tpot"),
        pytest.param(
            {"x-slo-ttft-ms": "300", "x-llm-d-slo-ttft-ms": "300.0"},
            HeaderSlo(ttft_ms=300),
            id="canonical and alias that agree",
        ),
        pytest.param(
            {"x-slo-deadline": "1764000001000", "x-slo-sent-at": "1764000000400"},
            HeaderSlo(e2e_ms=600),
            id="deadline and sent-at: only the difference counts",
        ),
        pytest.param(
            {"x-slo-deadline": "2000", "x-slo-sent-at": "500"},
            HeaderSlo(e2e_ms=1500),
            id="a client whose clock is fifty years off",
        ),
        pytest.param(
            {"x-slo-deadline": "1764000000250"}, HeaderSlo(e2e_ms=250), id="deadline against our own clock"
        ),
        pytest.param(
            {"x-slo-deadline": "1764000002000", "x-slo-max-latency-ms": "700"},
            HeaderSlo(e2e_ms=700),
            id="both latency and deadline: the tighter",
        ),
        pytest.param(
            {"x-slo-deadline": "1764000000500", "x-slo-max-latency-ms": "700"},
            HeaderSlo(e2e_ms=500),
            id="both deadline and latency: the tighter",
        ),
        pytest.param({"x-slo-sent-at": "1764000000000"}, NO_HEADERS, id="sent-at alone says nothing"),
    ],
)
def test_headers_become_durations(headers: dict[str, str], want: HeaderSlo) -> None:
    assert parse_slo_headers(headers, NOW_MS) == want


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "0.0",
        "-1",
        "+5",
        "",
        " ",
        "soon",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e3",
        "1_000",
        "0x10",
        "300ms",
        "1,5",
        "300, 200",
        "٣٠٠",
        "1" + "0" * 400,
        "9" * 10_000_000,
        "3600001",
        "1.5.2",
        "3 00",
        "300\x00",
    ],
    ids=lambda value: repr(value[:12]),
)
@pytest.mark.parametrize(
    "name",
    ["x-slo-max-latency-ms", "x-slo-ttft-ms", "x-slo-tpot-ms", "x-llm-d-slo-ttft-ms", "x-llm-d-slo-tpot-ms"],
)
def test_what_is_no_duration_is_refused_and_never_most_urgent(name: str, value: str) -> None:
    with pytest.raises(InvalidSlo) as refused:
        parse_slo_headers({name: value}, NOW_MS)
    assert refused.value.field == name
    assert len(refused.value.value) <= 80
    assert "milliseconds" in refused.value.fix


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        pytest.param({"x-slo-deadline": "1763999999999"}, "x-slo-deadline", id="already past"),
        pytest.param({"x-slo-deadline": "1764000000000"}, "x-slo-deadline", id="right now"),
        pytest.param({"x-slo-deadline": "1764003600001"}, "x-slo-deadline", id="more than an hour ahead"),
        pytest.param({"x-slo-deadline": "500"}, "x-slo-deadline", id="a duration where an instant is meant"),
        pytest.param({"x-slo-deadline": "1764000000"}, "x-slo-deadline", id="seconds instead of ms"),
        pytest.param({"x-slo-deadline": "9" * 16}, "x-slo-deadline", id="overflow"),
        pytest.param({"x-slo-deadline": "tomorrow"}, "x-slo-deadline", id="text"),
        pytest.param(
            {"x-slo-deadline": "1000", "x-slo-sent-at": "1000"}, "x-slo-deadline", id="due when it was sent"
        ),
        pytest.param(
            {"x-slo-deadline": "5000000", "x-slo-sent-at": "1"}, "x-slo-deadline", id="over an hour apart"
        ),
        pytest.param({"x-slo-deadline": "1000", "x-slo-sent-at": "x"}, "x-slo-sent-at", id="sent-at is text"),
        pytest.param({"x-slo-sent-at": "-5"}, "x-slo-sent-at", id="sent-at is negative"),
        pytest.param(
            {"x-slo-ttft-ms": "300", "x-llm-d-slo-ttft-ms": "200"}, "x-slo-ttft-ms", id="alias disagrees"
        ),
        pytest.param({"x-slo-contract-id": ""}, "x-slo-contract-id", id="empty id"),
        pytest.param({"x-slo-contract-id": "Checkout"}, "x-slo-contract-id", id="capitals"),
        pytest.param({"x-slo-contract-id": "a/b/c"}, "x-slo-contract-id", id="two slashes"),
        pytest.param({"x-slo-contract-id": "/a"}, "x-slo-contract-id", id="empty namespace"),
        pytest.param({"x-slo-contract-id": "../etc"}, "x-slo-contract-id", id="a path"),
        pytest.param({"x-slo-contract-id": "a" * 64}, "x-slo-contract-id", id="too long"),
        pytest.param({"x-slo-contract-id": "a" * 10_000_000}, "x-slo-contract-id", id="ten megabytes"),
        pytest.param({"x-slo-contract-id": "a\n"}, "x-slo-contract-id", id="a line break"),
    ],
)
def test_unusable_deadlines_and_ids_name_the_header(headers: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidSlo) as refused:
        parse_slo_headers(headers, NOW_MS)
    assert refused.value.field == field
    assert refused.value.fix


def test_a_contract_id_splits_into_namespace_and_service() -> None:
    assert split_contract_id("shop/checkout") == ("shop", "checkout")
    assert split_contract_id("checkout") == (None, "checkout")


def attempt(headers: dict[str, str]) -> HeaderSlo | InvalidSlo:
    try:
        return parse_slo_headers(headers, NOW_MS)
    except InvalidSlo as refused:
        return refused


@given(st.dictionaries(st.sampled_from(sorted(SLO_HEADERS)), st.text(max_size=40), max_size=8))
def test_any_text_is_either_refused_or_a_positive_duration(headers: dict[str, str]) -> None:
    slo = attempt(headers)
    if isinstance(slo, InvalidSlo):
        assert slo.field in SLO_HEADERS
        return
    for target in (slo.ttft_ms, slo.itl_ms, slo.e2e_ms):
        assert target is None or 0 < target <= MAX_TARGET_MS


@given(st.floats(min_value=-1e12, max_value=1e12), st.floats(min_value=-1e12, max_value=1e12))
def test_any_deadline_is_either_refused_or_within_the_hour(deadline: float, sent_at: float) -> None:
    headers = {"x-slo-deadline": f"{deadline:.3f}", "x-slo-sent-at": f"{sent_at:.3f}"}
    try:
        left = parse_slo_headers(headers, NOW_MS).e2e_ms
    except InvalidSlo:
        return
    assert left is not None
    assert 0 < left <= MAX_TARGET_MS
    assert left == pytest.approx(deadline - sent_at, abs=0.01)
