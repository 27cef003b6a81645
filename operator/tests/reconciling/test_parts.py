"""Backoff, events and the loop, each by itself."""

import asyncio
from dataclasses import replace

import pytest

from superinfer_core.placement import ExecutorPhase
from superinfer_operator.reconciling.backoff import CLEAN_AFTER_S, LONGEST_WAIT_S, Backoff, observe
from superinfer_operator.reconciling.events import (
    About,
    EventType,
    Happening,
    condition_events,
    event_document,
)
from superinfer_operator.reconciling.loop import Loop, Pace
from superinfer_operator.watching.cluster import Urgency
from superinfer_operator.watching.pods import ExecutorPod

SLOT = ("shop/p", 0)


def pod(uid, phase):
    return ExecutorPod("shop", f"p-0-{uid}", f"u{uid}", "shop/p", 0, uid, "r", {}, phase)


def failures(count, *, every_s=0.0):
    backoff, now = Backoff(), 1000.0
    for number in range(count):
        backoff = observe(backoff, [pod(number, ExecutorPhase.FAILED)], now)
        now += every_s
    return backoff, now - every_s


class TestBackoff:
    """When a slot that failed is tried again."""

    @pytest.mark.parametrize(
        ("count", "want_s"),
        [
            pytest.param(1, 0, id="the first failure waits for nothing"),
            pytest.param(2, 5, id="the second a little"),
            pytest.param(3, 10, id="the third twice as long"),
            pytest.param(60, LONGEST_WAIT_S, id="and never longer than the longest"),
        ],
    )
    def test_waits_grow_up_to_a_bound(self, count, want_s):
        backoff, now = failures(count)
        assert backoff.wait_s(SLOT, now) == want_s

    def test_one_failed_pod_counts_once_however_often_it_is_seen(self):
        backoff = Backoff()
        for _ in range(10):
            backoff = observe(backoff, [pod(1, ExecutorPhase.FAILED)], 1000.0)
        assert backoff.wait_s(SLOT, 1000.0) == 0

    def test_serving_for_a_while_clears_the_record(self):
        backoff, now = failures(5)
        serving = [pod(9, ExecutorPhase.READY)]
        backoff = observe(backoff, serving, now + 400)
        assert SLOT in backoff.records, "ready for a moment proves nothing"
        backoff = observe(backoff, serving, now + 400 + CLEAN_AFTER_S)
        assert SLOT not in backoff.records

    def test_a_slot_that_is_never_filled_again_is_forgotten(self):
        backoff, now = failures(3)
        assert observe(backoff, [], now + 20 * LONGEST_WAIT_S).records == {}

    def test_it_says_when_the_next_wait_ends(self):
        backoff, now = failures(2)
        assert backoff.next_at(now) == now + 5
        assert backoff.next_at(now + 6) is None


ABOUT = About("ChipletPool", "shop", "p", "u")


def condition(kind, status, reason, message="m"):
    return {"type": kind, "status": status, "reason": reason, "message": message}


class TestConditionEvents:
    """What changed, told once."""

    @pytest.mark.parametrize(
        ("before", "after", "want"),
        [
            pytest.param([], [condition("Ready", "True", "Ready")], [], id="all well at first sight"),
            pytest.param(
                [],
                [condition("Accepted", "False", "InvalidSpec")],
                ["InvalidSpec"],
                id="wrong at first sight",
            ),
            pytest.param(
                [condition("Placed", "True", "Placed")],
                [condition("Placed", "False", "NotPlaced")],
                ["NotPlaced"],
                id="became false",
            ),
            pytest.param(
                [condition("Placed", "False", "NotPlaced", "3 of 4")],
                [condition("Placed", "False", "NotPlaced", "2 of 4")],
                [],
                id="goes on, in other figures",
            ),
            pytest.param(
                [condition("Ready", "False", "ExecutorsStarting")],
                [condition("Ready", "False", "ExecutorsFailed")],
                ["ExecutorsFailed"],
                id="is false for another reason",
            ),
            pytest.param(
                [condition("Ready", "True", "Ready")],
                [condition("Ready", "True", "ExecutorsDraining")],
                [],
                id="still true",
            ),
            pytest.param(
                [condition("Ready", "True", "Ready"), condition("Accepted", "True", "Accepted")],
                [condition("Ready", "False", "InvalidSpec"), condition("Accepted", "False", "InvalidSpec")],
                ["InvalidSpec"],
                id="Ready does not repeat what another condition says",
            ),
        ],
    )
    def test_transitions(self, before, after, want):
        assert [event.reason for event in condition_events(ABOUT, before, after)] == want

    def test_what_became_false_is_a_warning_and_what_became_true_is_not(self):
        worse = condition_events(ABOUT, [condition("A", "True", "X")], [condition("A", "False", "Y")])
        better = condition_events(ABOUT, [condition("A", "False", "Y")], [condition("A", "True", "X")])
        assert (worse[0].type, better[0].type) == (EventType.WARNING, EventType.NORMAL)

    def test_a_pool_that_is_starting_worries_nobody(self):
        starting = [condition("Ready", "False", "ExecutorsStarting")]
        assert condition_events(ABOUT, [], starting) == []
        assert (
            condition_events(ABOUT, [condition("Ready", "True", "Ready")], starting)[0].type
            is EventType.NORMAL
        )

    def test_two_events_of_one_moment_have_two_names(self):
        happening = Happening(ABOUT, EventType.NORMAL, "R", "A", "n" * 5000)
        at = "2026-01-01T00:00:00.000000Z"
        one, two = (event_document(happening, now_micro=at, instance="i", number=n) for n in (1, 2))
        assert one["metadata"]["name"] != two["metadata"]["name"]
        assert len(one["note"]) <= 1024


QUICK = Pace(quiet_s=0.01, soon_s=0.02, idle_s=60, longest_retry_s=0.05)


class Steps:
    """A step that counts its runs and can be held, failed, or asked to come again."""

    def __init__(self):
        self.runs = 0
        self.together = 0
        self.most_together = 0
        self.again = None
        self.failing = False
        self.hold = asyncio.Event()
        self.hold.set()
        self.ran = asyncio.Event()

    async def __call__(self):
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        try:
            await self.hold.wait()
            self.runs += 1
            self.ran.set()
            if self.failing:
                raise RuntimeError("not this time")
        finally:
            self.together -= 1
        again, self.again = self.again, None
        return again

    async def until(self, runs):
        while self.runs < runs:
            self.ran.clear()
            await self.ran.wait()


@pytest.fixture
async def steps():
    return Steps()


@pytest.fixture
async def loop(steps):
    made = Loop(steps, QUICK)
    task = asyncio.create_task(made.run())
    await steps.until(1)
    yield made
    task.cancel()


class TestLoop:
    """One loop around one step."""

    async def test_changes_that_come_together_are_one_run(self, loop, steps):
        for _ in range(100):
            loop.poke()
        await steps.until(2)
        steps.again = 0.01
        loop.poke()
        await steps.until(3)
        assert steps.runs == 3

    async def test_a_change_during_a_run_is_another_run_and_never_beside_it(self, loop, steps):
        steps.hold.clear()
        loop.poke()
        while not steps.together:
            await asyncio.sleep(0)
        loop.poke(Urgency.SOON)
        loop.poke()
        steps.hold.set()
        await steps.until(3)
        assert steps.most_together == 1

    async def test_a_step_may_ask_to_be_run_again(self, loop, steps):
        steps.again = 0.02
        loop.poke()
        await steps.until(3)

    async def test_a_failed_step_is_tried_again_and_counted(self, loop, steps):
        steps.failing = True
        loop.poke()
        await steps.until(3)
        steps.failing = False
        await steps.until(4)
        while loop.runs < 2:
            await asyncio.sleep(0)
        assert loop.failures >= 2
        assert loop.running_since_s is None

    async def test_an_idle_loop_still_runs_every_so_often(self, steps):
        loop = Loop(steps, replace(QUICK, idle_s=0.02))
        task = asyncio.create_task(loop.run())
        await steps.until(3)
        task.cancel()
