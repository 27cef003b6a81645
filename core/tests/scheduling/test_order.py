"""Who goes first: total, deterministic, and in the order the design states."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduling_cases import CTX, MODEL, NOW, contexts, states, waiting

from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.order import order
from superinfer_core.scheduling.policy import Order, SchedulingPolicy
from superinfer_core.slo import Tier


@given(data=st.data(), ctx=contexts, count=st.integers(0, 8))
def test_the_order_is_total_and_ignores_the_input_sequence(
    data: st.DataObject, ctx: DecisionContext, count: int
) -> None:
    requests = [data.draw(states(f"r{i}")) for i in range(count)]
    shuffled = list(requests)
    random.Random(1).shuffle(shuffled)
    ordered = order(requests, NOW, ctx)
    assert ordered == order(shuffled, NOW, ctx)
    assert {r.request_id for r in ordered} == {r.request_id for r in requests}


def test_savable_work_goes_before_lost_work() -> None:
    lost = waiting("lost", Tier.GOLD, ttft=100, waited=99)
    savable = waiting("savable", Tier.BRONZE, ttft=5000)
    assert [r.request_id for r in order([lost, savable], NOW, CTX)] == ["savable", "lost"]


def test_gold_overtakes_bronze_that_can_wait() -> None:
    early, late = waiting("bronze", Tier.BRONZE, waited=200), waiting("gold", Tier.GOLD)
    assert [r.request_id for r in order([early, late], NOW, CTX)] == ["gold", "bronze"]


def test_among_equals_the_contract_that_can_hold_and_has_less_budget_goes_first() -> None:
    from dataclasses import replace

    base = waiting("x", Tier.GOLD)
    rows = [("broken", False, 0.0), ("rich", True, 0.9), ("poor", True, 0.1)]
    requests = [
        replace(base, request_id=n, slo=replace(base.slo, contract_holds=h, budget_left=b))
        for n, h, b in rows
    ]
    assert [r.request_id for r in order(requests, NOW, CTX)] == ["poor", "rich", "broken"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Order.FCFS, ["bronze", "silver", "gold"]),
        (Order.PRIORITY, ["gold", "silver", "bronze"]),
        (Order.EDF, ["gold", "silver", "bronze"]),
    ],
)
def test_baselines_keep_their_own_order(kind: Order, expected: list[str]) -> None:
    ctx = DecisionContext(MODEL, SchedulingPolicy(order=kind))
    requests = [
        waiting("gold", Tier.GOLD),
        waiting("silver", Tier.SILVER, waited=10),
        waiting("bronze", Tier.BRONZE, waited=20),
    ]
    assert [r.request_id for r in order(requests, NOW, ctx)] == expected


def test_a_started_prefill_keeps_its_turn() -> None:
    from dataclasses import replace

    from superinfer_core.scheduling.state import Phase

    a = waiting("a", Tier.GOLD, prompt=1000, waited=5)
    b = waiting("b", Tier.GOLD, prompt=1000)
    for done in range(0, 1000, 100):
        started = replace(a, phase=Phase.PREFILL, computed_tokens=done)
        assert order([b, started], NOW, CTX)[0].request_id == "a"
