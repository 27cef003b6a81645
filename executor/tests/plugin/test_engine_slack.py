"""The slack scheduler in a real engine: who goes first, and how much prefill a step computes."""

from typing import Any

import pytest

from superinfer_core.scheduling.policy import Order, SchedulingPolicy

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

GOLD, SILVER, BRONZE = {"slo_rank": 0}, {"slo_rank": 1}, {"slo_rank": 2}


def prefill_of(step: dict[str, Any], *decoding: str) -> int:
    return sum(tokens for request_id, tokens in step["tokens"].items() if request_id not in decoding)


def test_running_gold_keeps_its_pace_beside_a_long_prefill(engine: Any, prompt_of: Any) -> None:
    pace_ms = 12.0
    engine.submit("gold", prompt_of(40, 1), max_tokens=60, slo_ttft_ms=500, slo_itl_ms=pace_ms, **GOLD)
    engine.step()
    first_ms = engine.now_ms
    engine.submit("bronze", prompt_of(1_900, 2), max_tokens=2, slo_ttft_ms=60_000, **BRONZE)

    late = []
    for number in range(1, 60):
        engine.step()
        if engine.now_ms > first_ms + number * pace_ms + 1e-6:
            late.append(number)

    assert late == []
    assert engine.finished["bronze"] == "length", "the long prompt was served meanwhile"
    largest = max(prefill_of(step, "gold") for step in engine.steps[1:])
    assert 16 <= largest < 512


def test_without_a_step_budget_the_same_prefill_makes_gold_late(engine: Any, prompt_of: Any) -> None:
    """What the budget is for: vLLM's own choice is one step of all the tokens it may compute."""
    engine.follow(SchedulingPolicy(step_budget=False))
    engine.submit("gold", prompt_of(40, 1), max_tokens=60, slo_ttft_ms=500, slo_itl_ms=12, **GOLD)
    engine.step()
    engine.submit("bronze", prompt_of(1_900, 2), max_tokens=2, slo_ttft_ms=60_000, **BRONZE)
    engine.step()
    assert prefill_of(engine.steps[-1], "gold") == 511


def test_waiting_gold_takes_the_chunk_of_a_running_prefill(engine: Any, prompt_of: Any) -> None:
    engine.submit("bronze", prompt_of(1_900, 2), max_tokens=2, slo_ttft_ms=60_000, **BRONZE)
    engine.step()
    assert engine.running() == ["bronze"]
    engine.submit("gold", prompt_of(480, 1), max_tokens=2, slo_ttft_ms=120, **GOLD)

    while not engine.tokens["gold"]:
        engine.step()
        given = engine.steps[-1]["tokens"]
        if not engine.tokens["gold"]:
            assert "bronze" not in given, "all of the step's prefill is gold's"
    engine.run()

    assert engine.finished == {"gold": "length", "bronze": "length"}
    alone = engine.alone("bronze alone", prompt_of(1_900, 2), max_tokens=2)
    assert engine.tokens["bronze"] == alone, "a held prefill goes on where it stopped"


ARRIVALS = (
    ("a-bronze-soon", {"slo_ttft_ms": 2_000, **BRONZE}),
    ("b-silver-late", {"slo_ttft_ms": 9_000, **SILVER}),
    ("c-gold-later", {"slo_ttft_ms": 20_000, **GOLD}),
    ("d-best-effort", {}),
    ("e-silver-soon", {"slo_ttft_ms": 3_000, **SILVER}),
)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param(Order.FCFS, "abcd", id="first come first served is the order of arrival"),
        pytest.param(Order.PRIORITY, "cbea", id="priority is rank, then arrival"),
        pytest.param(Order.EDF, "aebc", id="earliest deadline first, without a deadline last"),
    ],
)
def test_the_batch_is_entered_in_the_policys_order(
    engine: Any, prompt_of: Any, order: Order, expected: str
) -> None:
    engine.follow(SchedulingPolicy(order=order))
    for seed, (name, promise) in enumerate(ARRIVALS):
        engine.submit(name, prompt_of(20, seed), **promise)
        engine.now_ms += 1
    engine.step()
    assert "".join(name[0] for name in engine.steps[0]["new"]) == expected


def test_slack_order_in_the_batch_is_the_cores_order(engine: Any, prompt_of: Any) -> None:
    """One decision, one place: what the simulator and the sidecar compute is what the engine does."""
    for seed, (name, promise) in enumerate(ARRIVALS):
        engine.submit(name, prompt_of(20, seed), **promise)
        engine.now_ms += 1
    expected = engine.core_order()
    engine.step()
    assert engine.steps[0]["new"] == expected[:4]


def test_nearly_late_bronze_goes_before_gold_with_time_to_spare(engine: Any, prompt_of: Any) -> None:
    engine.submit("gold", prompt_of(20, 1), slo_ttft_ms=5_000, **GOLD)
    engine.submit("bronze", prompt_of(20, 2), slo_ttft_ms=5_000, **BRONZE, slo_elapsed_ms=4_500)
    engine.step()
    assert engine.steps[0]["new"] == ["bronze", "gold"]


def test_elapsed_time_on_the_way_counts(engine: Any, prompt_of: Any) -> None:
    """A second spent between vLLM's front end and its scheduler is a second less to the deadline."""
    engine.submit("fresh", prompt_of(20, 1), slo_ttft_ms=2_000, **GOLD)
    engine.submit("waited", prompt_of(20, 2), slo_ttft_ms=2_000, **GOLD, arrival_ago_s=1.9)
    engine.step()
    assert engine.steps[0]["new"] == ["waited", "fresh"]


def test_baselines_have_vllms_own_step(engine: Any, prompt_of: Any) -> None:
    engine.follow(SchedulingPolicy(order=Order.EDF))
    engine.submit("gold", prompt_of(40, 1), max_tokens=20, slo_ttft_ms=500, slo_itl_ms=8, **GOLD)
    engine.step()
    engine.submit("bronze", prompt_of(1_900, 2), max_tokens=2, slo_ttft_ms=60_000, **BRONZE)
    engine.step()
    assert prefill_of(engine.steps[-1], "gold") == 511


def test_cancelling_frees_the_place_and_the_memory_at_once(engine: Any, prompt_of: Any) -> None:
    free = engine.free_blocks()
    for seed in range(6):
        engine.submit(f"r{seed}", prompt_of(300, seed), max_tokens=50, slo_ttft_ms=60_000, **BRONZE)
    for _ in range(6):
        engine.step()
    running, waiting = engine.running(), engine.waiting()
    assert len(running) == 4
    assert len(waiting) == 2
    for request_id in (*running, waiting[0]):
        engine.cancel(request_id)
    assert engine.running() == []
    assert engine.free_blocks() == free
    engine.step()
    assert engine.running() == [waiting[1]]


def test_a_long_queue_is_served_by_rank_in_the_end(engine: Any, prompt_of: Any) -> None:
    """More requests than a plan looks at: gold that came last still goes first."""
    for number in range(400):
        engine.submit(f"b{number:03}", prompt_of(8, number), max_tokens=1, slo_ttft_ms=10**7, **BRONZE)
    engine.submit("gold", prompt_of(8, 999), max_tokens=1, slo_ttft_ms=10**7, **GOLD)
    engine.step()
    assert engine.steps[0]["new"][0] == "gold"
    engine.run()
    assert len(engine.finished) == 401
