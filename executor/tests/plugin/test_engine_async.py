"""The scheduler for GPUs (vLLM's asynchronous one underneath), as far as a CPU can run it."""

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

GOLD, BRONZE = {"slo_rank": 0}, {"slo_rank": 2}
SAMPLED = {"temperature": 0.8, "presence_penalty": 0.5}


@pytest.fixture(scope="module")
def async_engine(make_engine: Any) -> Iterator[Any]:
    engine = make_engine(scheduler_cls="superinfer_executor.plugin.scheduler.SlackAsyncScheduler")
    engine.clear()
    yield engine
    assert engine.scheduler.failed_plans == 0


def test_displaced_and_resumed_tokens_stay_the_same(async_engine: Any, prompt_of: Any) -> None:
    engine = async_engine
    whole = list(engine.alone("whole", prompt_of(100, 0), max_tokens=60, seed=0, **SAMPLED))
    engine.steps.clear()
    for seed in range(4):
        engine.submit(
            f"bronze{seed}",
            prompt_of(100, seed),
            max_tokens=60,
            seed=seed,
            **SAMPLED,
            **BRONZE,
            slo_ttft_ms=60_000,
            slo_itl_ms=2_000,
            **({"resume_token_ids": whole[:10], "slo_since_first_token_ms": 5} if seed == 0 else {}),
        )
    for _ in range(8):
        engine.step()
    engine.submit("gold", prompt_of(64, 50), max_tokens=10, slo_ttft_ms=30, slo_itl_ms=50, **GOLD)
    engine.run()
    assert len([r for step in engine.steps for r in step["preempted"]]) == 1
    assert whole[:10] + engine.tokens["bronze0"] == whole
    together = {name: list(tokens) for name, tokens in engine.tokens.items()}
    for seed in range(1, 4):
        assert together[f"bronze{seed}"] == engine.alone(
            f"alone{seed}", prompt_of(100, seed), max_tokens=60, seed=seed, **SAMPLED
        )


def test_the_step_budget_holds(async_engine: Any, prompt_of: Any) -> None:
    engine = async_engine
    engine.clear()
    engine.submit("gold", prompt_of(40, 1), max_tokens=40, slo_ttft_ms=500, slo_itl_ms=12.0, **GOLD)
    engine.step()
    first_ms = engine.now_ms
    engine.submit("bronze", prompt_of(1_500, 2), max_tokens=2, slo_ttft_ms=60_000, **BRONZE)
    late = []
    for number in range(1, 40):
        engine.step()
        if engine.now_ms > first_ms + number * 12.0 + 1e-6:
            late.append(number)
    assert late == []
