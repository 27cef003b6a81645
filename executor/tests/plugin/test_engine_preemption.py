"""Displacement in a real engine: the urgent request gets in, the victim loses time and nothing else."""

from typing import Any

import pytest

from superinfer_core.scheduling.policy import SchedulingPolicy

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

GOLD, BRONZE = {"slo_rank": 0}, {"slo_rank": 2}
SAMPLED = {"temperature": 0.8, "presence_penalty": 0.5}


def fill_with_bronze(engine: Any, prompt_of: Any, *, count: int = 4, prompt_tokens: int = 100) -> None:
    for seed in range(count):
        engine.submit(
            f"bronze{seed}",
            prompt_of(prompt_tokens, seed),
            max_tokens=60,
            seed=seed,
            **SAMPLED,
            **BRONZE,
            slo_ttft_ms=60_000,
            slo_itl_ms=2_000,
        )
    for _ in range(8):
        engine.step()
    assert len(engine.running()) == count


def preempted(engine: Any) -> list[str]:
    return [request_id for step in engine.steps for request_id in step["preempted"]]


def test_an_urgent_request_displaces_one_victim_and_the_victim_ends_the_same(
    engine: Any, prompt_of: Any
) -> None:
    fill_with_bronze(engine, prompt_of)
    engine.submit("gold", prompt_of(64, 50), max_tokens=10, slo_ttft_ms=30, slo_itl_ms=50, **GOLD)
    asked_ms = engine.now_ms
    while not engine.tokens["gold"]:
        engine.step()
    assert engine.now_ms - asked_ms <= 30
    engine.run()

    (victim,) = preempted(engine)
    assert victim.startswith("bronze")
    together = {name: list(tokens) for name, tokens in engine.tokens.items()}
    for seed in range(4):
        alone = engine.alone(
            f"alone{seed}", prompt_of(100, seed), max_tokens=60, seed=seed, **SAMPLED, **BRONZE
        )
        assert together[f"bronze{seed}"] == alone, f"bronze{seed}, victim {victim}"


def test_the_victim_comes_back_from_the_prefix_cache(engine: Any, prompt_of: Any) -> None:
    fill_with_bronze(engine, prompt_of, prompt_tokens=200)
    engine.submit("gold", prompt_of(64, 50), max_tokens=10, slo_ttft_ms=30, slo_itl_ms=50, **GOLD)
    engine.run()
    (victim,) = preempted(engine)
    left = next(number for number, step in enumerate(engine.steps) if step["preempted"])
    back = next(step for step in engine.steps[left + 1 :] if victim in step["tokens"])
    assert back["computed"][victim] >= 192, "whole blocks were still there"
    assert back["tokens"][victim] <= 64, "only the rest was computed again"


def test_nobody_leaves_for_a_request_that_can_wait(engine: Any, prompt_of: Any) -> None:
    fill_with_bronze(engine, prompt_of)
    engine.submit("gold", prompt_of(64, 50), max_tokens=4, slo_ttft_ms=60_000, **GOLD)
    engine.run()
    assert preempted(engine) == []


def test_nobody_leaves_for_an_equal(engine: Any, prompt_of: Any) -> None:
    fill_with_bronze(engine, prompt_of)
    engine.submit("bronze-urgent", prompt_of(64, 50), max_tokens=4, slo_ttft_ms=30, **BRONZE)
    engine.run()
    assert preempted(engine) == []


def test_nobody_is_displaced_more_often_than_the_policy_allows(engine: Any, prompt_of: Any) -> None:
    engine.follow(SchedulingPolicy(max_preemptions=2))
    fill_with_bronze(engine, prompt_of)
    for number in range(30):
        name = f"gold{number}"
        engine.submit(name, prompt_of(32, 100 + number), max_tokens=3, slo_ttft_ms=25, slo_itl_ms=50, **GOLD)
        engine.step()
        engine.step()
    engine.run()
    times = {name: preempted(engine).count(name) for name in preempted(engine)}
    assert times
    assert max(times.values()) <= 2
    assert not any(name.startswith("gold") for name in times)
    assert set(engine.finished.values()) == {"length"}


def test_a_full_kv_cache_gives_way_like_a_full_batch(tight_engine: Any, prompt_of: Any) -> None:
    engine = tight_engine
    fill_with_bronze(engine, prompt_of, count=2, prompt_tokens=400)
    engine.submit("gold", prompt_of(256, 50), max_tokens=4, slo_ttft_ms=60, slo_itl_ms=50, **GOLD)
    asked_ms = engine.now_ms
    while not engine.tokens["gold"]:
        engine.step()
    assert engine.now_ms - asked_ms <= 60
    engine.run()
    assert len(preempted(engine)) == 1
    together = list(engine.tokens[preempted(engine)[0]])
    seed = int(preempted(engine)[0][-1])
    assert together == engine.alone("alone", prompt_of(400, seed), max_tokens=60, seed=seed, **SAMPLED)


def test_nobody_leaves_when_it_would_not_make_enough_room(tight_engine: Any, prompt_of: Any) -> None:
    engine = tight_engine
    engine.submit("gold-running", prompt_of(600, 1), max_tokens=40, slo_ttft_ms=60_000, **GOLD)
    engine.submit("bronze", prompt_of(100, 2), max_tokens=40, slo_ttft_ms=60_000, **BRONZE)
    for _ in range(4):
        engine.step()
    assert len(engine.running()) == 2
    engine.submit("gold-large", prompt_of(800, 3), max_tokens=2, slo_ttft_ms=100, **GOLD)
    engine.run()
    assert preempted(engine) == []


def test_when_decoding_fills_the_memory_the_least_important_leaves(tight_engine: Any, prompt_of: Any) -> None:
    """vLLM's own preemption; the order of victims is ours."""
    engine = tight_engine
    engine.submit("bronze", prompt_of(300, 1), max_tokens=120, slo_ttft_ms=60_000, **BRONZE)
    engine.submit("gold", prompt_of(300, 2), max_tokens=120, slo_ttft_ms=60_000, **GOLD)
    engine.submit("silver", prompt_of(300, 3), max_tokens=120, slo_ttft_ms=60_000, slo_rank=1)
    engine.run()
    assert set(preempted(engine)) == {"bronze"}
    assert set(engine.finished.values()) == {"length"}
