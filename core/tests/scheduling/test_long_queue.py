"""A long queue of best effort changes nothing for promises, and is told what it may expect."""

from dataclasses import replace

import pytest
from scheduling_cases import CTX, NOW, decoding, engine, waiting

from superinfer_core.scheduling import admission
from superinfer_core.scheduling.admission import admit
from superinfer_core.scheduling.order import order
from superinfer_core.scheduling.state import RequestState
from superinfer_core.slo import Rank, RequestSlo, Tier

RUNNING = tuple(decoding(f"r{i}", Tier.SILVER, done=10, total=40 + 3 * i) for i in range(8))


def effort(number: int, prompt: int = 300) -> RequestState:
    slo = RequestSlo("", Rank(9), best_effort=True)
    return replace(waiting(f"e{number:04d}", Tier.BRONZE, prompt=prompt), slo=slo, arrived_ms=NOW - 1)


def queue(length: int) -> tuple[RequestState, ...]:
    return tuple(effort(i) for i in range(length))


@pytest.mark.parametrize("tier", list(Tier), ids=lambda tier: tier.value)
@pytest.mark.parametrize("promised", [0, 3, 20])
def test_a_promise_is_the_same_however_long_best_effort_waits(tier: Tier, promised: int) -> None:
    ahead = tuple(waiting(f"p{i}", Tier.SILVER, prompt=200, ttft=4_000) for i in range(promised))
    candidate = waiting("c", tier)
    answers = [admit(candidate, engine(*RUNNING, *ahead, *queue(n)), NOW, CTX) for n in (80, 600)]
    assert answers[0].admitted == answers[1].admitted
    assert answers[0].prediction.ttft_ms == pytest.approx(answers[1].prediction.ttft_ms)


def test_a_promise_does_not_roll_forward_what_waits_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rolled: list[int] = []
    project = admission.project

    def counting(jobs: list[RequestState], *rest: object) -> object:
        rolled.append(len(jobs))
        return project(jobs, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(admission, "project", counting)
    admit(waiting("c", Tier.GOLD), engine(*RUNNING, *queue(600)), NOW, CTX)
    assert max(rolled) == 1
    rolled.clear()
    assert admit(effort(9999), engine(*RUNNING, *queue(600)), NOW, CTX).admitted
    assert not rolled


def test_best_effort_is_told_of_the_queue_before_it() -> None:
    told = [
        admit(effort(9999), engine(*RUNNING, *queue(n), places=8), NOW, CTX).prediction for n in (20, 60, 600)
    ]
    assert [p.ttft_ms for p in told] == sorted(p.ttft_ms for p in told)
    assert told[-1].e2e_ms > told[-1].ttft_ms > 5 * told[0].ttft_ms


def test_best_effort_keeps_its_order_of_arrival_behind_promises() -> None:
    several = [replace(e, arrived_ms=NOW - i) for i, e in enumerate(queue(4))]
    late = waiting("late", Tier.BRONZE, ttft=60_000)
    assert [r.request_id for r in order([*several, late], NOW, CTX)] == [
        "late",
        "e0003",
        "e0002",
        "e0001",
        "e0000",
    ]
