"""Room for others: long contexts must not make the batch too slow for gold that is to come, or is there."""

import pytest

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.admission import admit
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import ArrivalForecast
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.slo import Rank, RequestSlo, Tier

MODEL = StepModel(3.0, 0.05, 0.0004, 0.03, 0.0)
"""Ten sequences of 2,000 tokens decode in 11.5 ms."""
ITL_MS = {Tier.GOLD: 12.0, Tier.SILVER: 18.0, Tier.BRONZE: 30.0}


def request(
    name: str, tier: Tier, *, phase: Phase = Phase.WAITING, prompt: int = 2_000, out: int = 200
) -> RequestState:
    slo = RequestSlo("c", Rank(tier.rank), ttft_ms=60_000.0, itl_ms=ITL_MS[tier])
    decodes = phase is Phase.DECODE
    # A decode stands where its pace wants it: ten tokens out, the next due in one target.
    first = 200.0 - 9 * ITL_MS[tier] if decodes else None
    computed, done = (prompt + 10, 10) if decodes else (0, 0)
    return RequestState(name, slo, 0.0, phase, prompt, computed, done, out, first)


def answer(
    tier: Tier,
    *,
    bronze: int = 0,
    gold: int = 0,
    gold_seen: int = 4,
    gone_ms: float = 0.0,
    candidate: RequestState | None = None,
    policy: SchedulingPolicy | None = None,
) -> bool:
    """Whether `tier` is admitted beside so many decodes, after `gold_seen` gold came in the last 200 ms."""
    forecast = ArrivalForecast()
    for number in range(gold_seen):
        forecast.arrive(number * 10.0, request("g", Tier.GOLD), MODEL, 32)
    for number in range(4):
        forecast.arrive(number * 10.0, request("b", Tier.BRONZE), MODEL, 32)
    running = (
        *(request(f"b{n}", Tier.BRONZE, phase=Phase.DECODE) for n in range(bronze)),
        *(request(f"g{n}", Tier.GOLD, phase=Phase.DECODE) for n in range(gold)),
    )
    policy = policy or SchedulingPolicy(reserve_places=0.0, reserve_share=0.0)
    ctx = DecisionContext(MODEL, policy, forecast=forecast.snapshot(200.0 + gone_ms))
    return admit(
        candidate or request("new", tier), EngineState(32, 2048, 1 << 20, running), 200.0, ctx
    ).admitted


@pytest.mark.parametrize(
    ("bronze", "tier", "admitted"),
    [
        pytest.param(0, Tier.BRONZE, True, id="an idle engine takes bronze"),
        pytest.param(4, Tier.BRONZE, True, id="a few long contexts leave gold its pace"),
        pytest.param(23, Tier.BRONZE, False, id="a batch of them would not, however often they paused"),
        pytest.param(23, Tier.GOLD, True, id="gold itself is judged by its own pace"),
    ],
)
def test_pace_is_kept_for_gold(bronze: int, tier: Tier, admitted: bool) -> None:
    assert answer(tier, bronze=bronze) is admitted


def test_those_who_may_pause_count_for_the_steps_they_need() -> None:
    """A dozen bronze: too many if all decoded in every step, not if each decodes as its pace needs."""
    together = SchedulingPolicy(reserve_places=0.0, reserve_share=0.0, pause_decodes=False)
    assert answer(Tier.BRONZE, bronze=12)
    assert not answer(Tier.BRONZE, bronze=12, policy=together)


def test_gold_that_is_there_is_not_expected_once_more() -> None:
    """Three of the gold that came are in the batch: they take room, and less is still to come."""
    alone = sum(answer(Tier.BRONZE, bronze=n, gold_seen=16) for n in range(30))
    beside = sum(answer(Tier.BRONZE, bronze=n, gold=3, gold_seen=16) for n in range(30))
    unexpected = sum(answer(Tier.BRONZE, bronze=n, gold=3, gold_seen=0) for n in range(30))
    assert alone - beside < 10
    assert beside < unexpected


def test_more_gold_lately_leaves_less_for_bronze() -> None:
    assert answer(Tier.BRONZE, bronze=20, gold_seen=2)
    assert not answer(Tier.BRONZE, bronze=20, gold_seen=32)


def test_nothing_is_kept_for_gold_that_never_came() -> None:
    assert answer(Tier.BRONZE, bronze=29, gold_seen=0)


def test_nothing_is_kept_for_gold_that_stopped_coming() -> None:
    assert answer(Tier.BRONZE, bronze=29, gone_ms=120_000.0)


def test_where_room_is_short_it_goes_to_small_requests() -> None:
    small, large = request("s", Tier.BRONZE, prompt=500, out=50), request("l", Tier.BRONZE, prompt=4_000)
    assert answer(Tier.BRONZE, bronze=23, candidate=small)
    assert not answer(Tier.BRONZE, bronze=23, candidate=large)


def test_gold_in_the_batch_keeps_its_pace_whoever_asks() -> None:
    assert answer(Tier.GOLD, gold=8)
    assert not answer(Tier.GOLD, gold=10)
