"""A full engine still promises what running, less important work can give way for."""

import pytest

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.admission import admit
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.scheduling.step import plan_step
from superinfer_core.slo import Rank, RequestSlo, Tier

CTX = DecisionContext(
    model=StepModel(base_ms=50, per_decode_seq_ms=5, per_prefill_token_ms=3), policy=SchedulingPolicy()
)
NOW_MS = 10_000.0


def running(name: str, tier: Tier, *, e2e_ms: float = 100_000, preemptions: int = 0) -> RequestState:
    slo = RequestSlo("demo/work", Rank(tier.rank), e2e_ms=e2e_ms)
    return RequestState(
        name, slo, 9_000.0, Phase.DECODE, 40, 48, 8, 72, first_token_ms=9_300.0, preemptions=preemptions
    )


def arriving(ttft_ms: float = 1_000, tier: Tier = Tier.GOLD, name: str = "gold") -> RequestState:
    slo = RequestSlo("demo/gold", Rank(tier.rank), ttft_ms=ttft_ms)
    return RequestState(name, slo, NOW_MS, Phase.WAITING, 40, 0, 0, 16)


def engine(*requests: RequestState, places: int = 2) -> EngineState:
    return EngineState(places, 2048, 100_000, requests)


FULL = (running("bronze-1", Tier.BRONZE), running("bronze-2", Tier.BRONZE))


def test_gold_is_promised_a_place_of_running_bronze_and_gets_it_in_time() -> None:
    state, gold = engine(*FULL), arriving()
    answer = admit(gold, state, NOW_MS, CTX)
    assert answer.admitted
    assert answer.prediction.ttft_ms <= 1_000
    displaced_at = next(
        now
        for now in range(int(NOW_MS), int(NOW_MS) + 1_000, 60)
        if plan_step(engine(*FULL, gold), now, CTX).preempt
    )
    assert displaced_at + CTX.model.prefill_ms(40, chunk_tokens=2048) <= NOW_MS + 1_000


@pytest.mark.parametrize(
    ("requests", "candidate"),
    [
        ((running("g1", Tier.GOLD), running("g2", Tier.GOLD)), arriving()),
        (FULL, arriving(ttft_ms=100)),
        (tuple(running(n, Tier.BRONZE, e2e_ms=4_000) for n in ("b1", "b2")), arriving()),
        (tuple(running(n, Tier.BRONZE, preemptions=2) for n in ("b1", "b2")), arriving()),
        (FULL, arriving(tier=Tier.BRONZE)),
        ((*FULL, arriving(name="gold-1"), arriving(name="gold-2")), arriving()),
    ],
    ids=[
        "everything running is as important",
        "the prompt alone takes longer than promised",
        "bronze would miss its own end",
        "bronze was displaced as often as allowed",
        "the one who asks is no more important",
        "as many gold already wait as there are places",
    ],
)
def test_gold_is_refused_a_place_when(requests: tuple[RequestState, ...], candidate: RequestState) -> None:
    assert not admit(candidate, engine(*requests), NOW_MS, CTX).admitted
