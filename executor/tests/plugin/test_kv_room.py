"""Room for an urgent request: either the victims named make enough of it, or nobody is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.scheduling.step import StepPlan
from superinfer_core.slo import Rank, RequestSlo
from superinfer_executor.plugin.kv_room import plan_with_room

NOW_MS = 1_000_000.0
MODEL = StepModel(base_ms=5.0, per_decode_seq_ms=0.1, per_prefill_token_ms=0.1)


def bronze(name: str, kv_tokens: int, *, preemptions: int = 0) -> RequestState:
    slo = RequestSlo(contract="", rank=Rank(2), ttft_ms=60_000.0, itl_ms=5_000.0)
    first_ms, arrived_ms = NOW_MS - 500, NOW_MS - 1_000
    return RequestState(
        name, slo, arrived_ms, Phase.DECODE, kv_tokens - 10, kv_tokens - 1, 10, 60, first_ms, preemptions
    )


def gold(*, tokens: int = 256, ttft_ms: float = 45.0) -> RequestState:
    slo = RequestSlo(contract="", rank=Rank(0), ttft_ms=ttft_ms, itl_ms=50.0)
    return RequestState("gold", slo, NOW_MS, Phase.WAITING, tokens, 0, 0, 10)


def plan(running: list[RequestState], urgent: RequestState, free: int, **options: int) -> StepPlan:
    held = {r.request_id: r.computed_tokens for r in running}
    state = EngineState(options.get("places", 8), 512, 4_096, (*running, urgent))
    ctx = DecisionContext(MODEL, SchedulingPolicy(max_preemptions=options.get("max_preemptions", 2)))
    return plan_with_room(
        state,
        NOW_MS,
        ctx,
        free_tokens=free,
        needed_tokens=lambda _: urgent.prompt_tokens,
        freed_tokens=lambda name: held[name],
    )


def victims(found: StepPlan) -> list[str]:
    return [each.victim_id for each in found.preempt]


def test_memory_enough_nobody_leaves() -> None:
    assert victims(plan([bronze("a", 300), bronze("b", 300)], gold(), free=256)) == []


def test_memory_short_one_leaves() -> None:
    found = plan([bronze("a", 300), bronze("b", 300)], gold(), free=100)
    assert len(victims(found)) == 1
    assert found.preempt[0].for_id == "gold"
    assert found.waiting[0] == "gold"
    assert victims(found)[0] not in found.running


def test_memory_short_several_leave_when_one_is_not_enough() -> None:
    found = plan([bronze("a", 120), bronze("b", 120), bronze("c", 120)], gold(tokens=300), free=0)
    assert len(set(victims(found))) == 3


def test_nobody_leaves_when_all_of_them_are_not_enough() -> None:
    assert victims(plan([bronze("a", 100), bronze("b", 100)], gold(tokens=300), free=50)) == []


def test_a_full_batch_counts_too() -> None:
    assert len(victims(plan([bronze("a", 300)], gold(), free=4_000, places=1))) == 1


def test_a_place_without_memory_is_no_place() -> None:
    """The batch is full and one victim's memory would not do: nobody leaves for nothing."""
    assert victims(plan([bronze("a", 100)], gold(tokens=300), free=0, places=1)) == []


def test_who_was_displaced_often_enough_stays() -> None:
    assert victims(plan([bronze("a", 400, preemptions=2)], gold(), free=0)) == []


def test_a_policy_without_preemption_names_nobody() -> None:
    assert victims(plan([bronze("a", 400)], gold(), free=0, max_preemptions=0)) == []


@given(
    kv=st.lists(st.integers(20, 600), min_size=1, max_size=8),
    need=st.integers(1, 512),
    free=st.integers(0, 600),
    places=st.integers(1, 8),
    ttft_ms=st.floats(20, 200),
)
def test_the_victims_named_make_enough_room(
    kv: list[int], need: int, free: int, places: int, ttft_ms: float
) -> None:
    running = [bronze(f"b{number}", tokens) for number, tokens in enumerate(kv[:places])]
    found = plan(running, gold(tokens=need, ttft_ms=ttft_ms), free=free, places=places)
    assert len(set(victims(found))) == len(found.preempt)
    if found.preempt:
        freed = sum(r.computed_tokens for r in running if r.request_id in victims(found))
        assert free + freed >= need
        assert not set(victims(found)) & set(found.running)


@pytest.mark.parametrize("ttft_ms", [60_000.0])
def test_memory_short_but_there_is_time(ttft_ms: float) -> None:
    assert victims(plan([bronze("a", 400)], gold(ttft_ms=ttft_ms), free=0)) == []
