"""The loop by itself, in virtual time: when its step runs, and how often."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from superinfer_kube.testing.virtual_time import VirtualTime, now_s
from superinfer_operator.reconciling import loop as loop_module
from superinfer_operator.reconciling.loop import Loop, Pace
from superinfer_operator.watching.cluster import Urgency

PACE = Pace(quiet_s=0.1, soon_s=2.0, idle_s=600.0, longest_retry_s=30.0)


class Steps:
    """A step that notes when it began, and can take long, fail, or ask to be run again."""

    def __init__(self):
        self.began_s = []
        self.together = 0
        self.most_together = 0
        self.takes_s = 0.0
        self.again_s = None
        self.fails = False

    async def __call__(self):
        self.began_s.append(now_s())
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        await asyncio.sleep(self.takes_s)
        self.together -= 1
        if self.fails:
            raise RuntimeError("not this time")
        again_s, self.again_s = self.again_s, None
        return again_s


@pytest.fixture
def play(monkeypatch):
    """Runs a scenario after a loop's first step; gives when later steps began, counted from then."""

    def run(scenario, pace=PACE):
        async def main():
            monkeypatch.setattr(loop_module, "monotonic", now_s)
            steps = Steps()
            loop = Loop(steps, pace)
            task = asyncio.create_task(loop.run())
            await asyncio.sleep(0.001)
            steps.began_s.clear()
            started_s = now_s()
            await scenario(loop, steps)
            task.cancel()
            return [round(began_s - started_s, 3) for began_s in steps.began_s]

        with asyncio.Runner(loop_factory=VirtualTime) as runner:
            return runner.run(main())

    return run


def test_changes_that_come_within_the_quiet_time_are_one_run(play):
    async def burst(loop, _steps):
        for _ in range(9):
            loop.poke()
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)

    assert play(burst) == [0.1]


def test_a_stream_of_changes_neither_delays_a_run_nor_causes_one_each(play):
    async def stream(loop, _steps):
        for _ in range(100):
            loop.poke()
            await asyncio.sleep(0.03)
        await asyncio.sleep(60)

    began_s = play(stream)
    assert began_s[0] == 0.1, "later changes must not push an earlier one's run away"
    gaps_s = [later - sooner for sooner, later in pairwise(began_s)]
    assert min(gaps_s) >= 0.1
    assert len(began_s) <= 30


@pytest.mark.parametrize(
    ("urgencies", "want_s"),
    [
        pytest.param([Urgency.SOON], 2.0, id="what is seldom of consequence waits"),
        pytest.param([Urgency.SOON, Urgency.NOW], 0.1, id="what is urgent takes it along"),
        pytest.param([Urgency.NOW, Urgency.SOON], 0.1, id="and is not held up by it"),
    ],
)
def test_a_run_comes_when_the_most_urgent_change_needs_it(play, urgencies, want_s):
    async def changes(loop, _steps):
        for urgency in urgencies:
            loop.poke(urgency)
        await asyncio.sleep(60)

    assert play(changes) == [want_s]


def test_a_change_during_a_run_is_another_run_and_never_beside_it(play):
    seen = []

    async def changing(loop, steps):
        steps.takes_s = 1.0
        loop.poke()
        await asyncio.sleep(0.5)
        loop.poke()
        await asyncio.sleep(60)
        seen.append(steps.most_together)

    assert play(changing) == [0.1, 1.1]
    assert seen == [1]


@pytest.mark.parametrize(
    ("again_s", "want_s"),
    [
        pytest.param(5.0, [0.1, 5.1], id="later"),
        pytest.param(0.0, [0.1, 0.2], id="at once, but never without a pause"),
        pytest.param(None, [0.1], id="not at all"),
    ],
)
def test_a_step_may_ask_to_be_run_again(play, again_s, want_s):
    async def asking(loop, steps):
        steps.again_s = again_s
        loop.poke()
        await asyncio.sleep(60)

    assert play(asking) == want_s


def test_a_failing_step_is_tried_again_with_growing_pauses_whatever_changes(play):
    counted = []

    async def failing(loop, steps):
        steps.fails = True
        loop.poke()
        for _ in range(3000):
            await asyncio.sleep(0.1)
            loop.poke()
        counted.append((loop.failures, loop.runs))

    began_s = play(failing)
    assert len(began_s) < 150, "300 s of changes must not turn failures into a busy loop"
    assert counted == [(len(began_s), 1)]


def test_it_goes_on_as_before_once_a_step_works_again(play):
    async def recovering(loop, steps):
        steps.fails = True
        loop.poke()
        await asyncio.sleep(100)
        steps.fails = False
        await asyncio.sleep(100)
        assert loop.running_since_s is None
        steps.began_s.clear()
        loop.poke()
        await asyncio.sleep(60)
        steps.began_s[:] = [began_s - 200 for began_s in steps.began_s]

    assert play(recovering) == [0.1]


def test_an_idle_loop_still_runs_every_so_often(play):
    async def nothing(_loop, _steps):
        await asyncio.sleep(70)

    assert play(nothing, replace(PACE, idle_s=20.0)) == [19.999, 39.999, 59.999]
