"""Several choices are several sequences: they decode, hold places and displace as many as they are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduling_cases import CTX, MODEL, NOW, decoding, engine, waiting

from superinfer_core.scheduling.admission import admit
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.displacing import displaced_for
from superinfer_core.scheduling.forecast import ForecastSnapshot, RankLoad
from superinfer_core.scheduling.state import Phase, RequestState
from superinfer_core.slo import Rank, RequestSlo, Tier

HASTY = RequestSlo("t/hasty", Rank(0), ttft_ms=1_000.0, itl_ms=7.0)
"""A pace that a batch of twenty keeps (5 ms and 0.1 ms each), and one of more does not."""


def choices(name: str, places: int, tier: Tier = Tier.GOLD) -> RequestState:
    return replace(waiting(name, tier), places=places)


@pytest.mark.parametrize(
    ("places", "admitted"), [(1, True), (16, True), (24, False)], ids=["one", "as many as fit", "too many"]
)
def test_choices_are_promised_the_pace_of_the_batch_they_make(places: int, admitted: bool) -> None:
    candidate = replace(choices("c", places), slo=HASTY)
    answer = admit(candidate, engine(), NOW, CTX)
    assert answer.admitted is admitted
    assert answer.prediction.itl_ms == pytest.approx(MODEL.step_ms(decode_seqs=places), rel=0.01)


def test_running_choices_slow_everyone_as_so_many_sequences() -> None:
    def itl_ms(running: tuple[RequestState, ...]) -> float:
        return admit(waiting("c", Tier.BRONZE), engine(*running), NOW, CTX).prediction.itl_ms

    one_by_one = tuple(decoding(f"r{i}", Tier.BRONZE) for i in range(8))
    together = (replace(decoding("r", Tier.BRONZE), places=8),)
    assert itl_ms(together) == pytest.approx(itl_ms(one_by_one))


def test_choices_wait_until_as_many_places_are_free() -> None:
    running = tuple(decoding(f"r{i}", Tier.GOLD, total=12 + 100 * i) for i in range(4))
    first = admit(choices("c", 1), engine(*running, places=4), NOW, CTX).prediction.ttft_ms
    second = admit(choices("c", 2), engine(*running, places=4), NOW, CTX).prediction.ttft_ms
    assert second > first + 90 * MODEL.step_ms(decode_seqs=3)


def test_choices_count_against_the_places_kept_for_higher_ranks() -> None:
    gold = ForecastSnapshot((RankLoad(Rank(0), 0.1, 20.0, 0.01),), 100.0)
    ctx = DecisionContext(MODEL, forecast=gold)
    busy = engine(*(decoding(f"b{i}", Tier.BRONZE) for i in range(4)))
    assert admit(choices("c", 1, Tier.BRONZE), busy, NOW, ctx).admitted
    assert not admit(choices("c", 16, Tier.BRONZE), busy, NOW, ctx).admitted


def test_choices_displace_as_many_places_as_they_need() -> None:
    full = engine(*(decoding(f"b{i}", Tier.BRONZE, ahead_ms=60_000) for i in range(3)), places=3)
    displaced = displaced_for(choices("c", 2), full, NOW, CTX)
    assert displaced is not None
    assert displaced.running_places == 1
    wide = engine(replace(decoding("b", Tier.BRONZE, ahead_ms=60_000), places=3), places=3)
    displaced = displaced_for(choices("c", 2), wide, NOW, CTX)
    assert displaced is not None
    assert displaced.running_places == 0
    assert displaced_for(choices("c", 4), full, NOW, CTX) is None


@given(places=st.integers(1, 100), running=st.lists(st.integers(1, 40), max_size=4), room=st.integers(1, 32))
def test_more_choices_than_places_get_an_answer(places: int, running: list[int], room: int) -> None:
    there = tuple(replace(decoding(f"r{i}", Tier.BRONZE), places=n) for i, n in enumerate(running))
    queued = tuple(
        replace(choices(f"q{i}", n, Tier.BRONZE), phase=Phase.WAITING) for i, n in enumerate(running)
    )
    answer = admit(choices("c", places), engine(*there, *queued, places=room), NOW, CTX)
    assert answer.prediction.ttft_ms > 0
