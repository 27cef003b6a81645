"""Budgets, shares of a step, bounds of a restore, identities of layouts."""

from dataclasses import replace

import pytest

from superinfer_core.checkpoint.budget import ByteBudget
from superinfer_core.checkpoint.capture import Unsaved, share_out
from superinfer_core.checkpoint.layout import LayoutFacts, layout_id
from superinfer_core.checkpoint.restore import (
    MOST_RESTORE_MS,
    Holding,
    best_holding,
    missing_tokens,
    restore_bounds,
)


def test_no_more_than_the_burst_and_the_rate_go_in_any_time():
    budget = ByteBudget(1000.0, 500.0)
    sent = 0.0
    for now_ms in range(0, 10_000, 7):
        if budget.available(now_ms) >= 100:
            budget.spend(100, now_ms)
            sent += 100
        assert sent <= 500 + now_ms
    assert sent >= 0.95 * 10_000


def test_a_block_larger_than_the_burst_goes_and_later_ones_pay():
    budget = ByteBudget(1000.0, 500.0)
    assert budget.wait_ms(5000, 0.0) == 0
    budget.spend(5000, 0.0)
    assert budget.wait_ms(100, 0.0) == pytest.approx(4600)
    assert budget.wait_ms(100, 4600.0) == pytest.approx(0)


def test_no_rate_is_no_limit():
    budget = ByteBudget(0.0, 1.0)
    budget.spend(1e12, 0.0)
    assert budget.available(0.0) == float("inf")
    assert budget.wait_ms(1e12, 0.0) == 0


def test_a_clock_that_stands_or_goes_back_gives_nothing():
    budget = ByteBudget(1000.0, 500.0)
    budget.spend(500, 1000.0)
    assert budget.available(1000.0) == 0
    assert budget.available(10.0) == 0


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        pytest.param(0, {}, id="none"),
        pytest.param(3, {"gold": 3}, id="the important first"),
        pytest.param(6, {"gold": 4, "short": 1, "long": 1}, id="then what lacks least"),
        pytest.param(99, {"gold": 4, "short": 1, "long": 50}, id="all"),
    ],
)
def test_a_step_is_shared_out(room, expected):
    unsaved = [Unsaved("long", 2, 50), Unsaved("short", 2, 1), Unsaved("gold", 0, 4)]
    assert share_out(unsaved, room) == expected


def test_restoring_may_take_what_recomputing_takes_and_is_not_tried_for_little():
    assert restore_bounds(5.0) is None
    assert restore_bounds(float("nan")) is None
    bounds = restore_bounds(400.0)
    assert bounds.total_ms == 400.0
    assert bounds.locate_ms < bounds.total_ms
    assert restore_bounds(1e9).total_ms == MOST_RESTORE_MS


def test_the_first_of_the_best_holders_is_asked():
    holdings = [Holding("a", 3, 1), Holding("b", 7), Holding("c", 7), Holding("d", 6, 1)]
    assert best_holding(holdings, Holding("", 2)).address == "b"
    assert best_holding(holdings, Holding("", 7)) is None
    assert best_holding([*holdings, Holding("e", 7, 1)], Holding("", 7)).address == "e"
    assert best_holding([], Holding("", 0)) is None


@pytest.mark.parametrize(
    ("tokens", "blocks", "tail", "missing"),
    [
        pytest.param(100, 0, False, 96, id="everything but what is in no whole block"),
        pytest.param(100, 1, False, 64, id="whole blocks"),
        pytest.param(100, 3, False, 0, id="the rest is less than half a block: nobody has it"),
        pytest.param(120, 3, False, 23, id="the rest is more than half of one"),
        pytest.param(120, 3, True, 0, id="and we have a part of it"),
        pytest.param(120, 1, True, 64, id="a part of an earlier one is no help"),
        pytest.param(97, 3, False, 0, id="the last token is computed anyway"),
        pytest.param(97, 9, True, 0, id="more than is wanted"),
        pytest.param(1, 0, False, 0, id="one token"),
    ],
)
def test_what_others_may_have_of_a_stream(tokens, blocks, tail, missing):
    assert missing_tokens(tokens, block_tokens=32, blocks=blocks, tail=tail) == missing


FACTS = LayoutFacts(
    engine="vllm 0.32.0",
    platform="cpu vec",
    weights="abc",
    model={"hidden_size": 128, "rope": {"theta": 1.0}},
    cache_dtype="float32",
    block_tokens=32,
    block_bytes=98_304,
    layers=("0", "1"),
    hashing="sha256 x",
)


@pytest.mark.parametrize(
    "change",
    [
        {"engine": "vllm 0.33.0"},
        {"platform": "cuda"},
        {"weights": "abd"},
        {"model": {"hidden_size": 128, "rope": {"theta": 2.0}}},
        {"cache_dtype": "bfloat16"},
        {"block_tokens": 16},
        {"block_bytes": 98_305},
        {"layers": ("1", "0")},
        {"hashing": "sha256 y"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_the_bytes_changes_the_layout(change):
    assert layout_id(replace(FACTS, **change)) != layout_id(FACTS)


def test_equal_facts_have_equal_layouts():
    reordered = replace(FACTS, model={"rope": {"theta": 1.0}, "hidden_size": 128})
    assert layout_id(reordered) == layout_id(FACTS)
