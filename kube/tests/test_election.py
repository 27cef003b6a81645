"""Elections in virtual time: one leader, never two, and soon another where it is gone."""

import asyncio
import copy
from dataclasses import dataclass, field

import pytest

from superinfer_kube import election as election_module
from superinfer_kube.election import Election
from superinfer_kube.errors import AlreadyExists, Conflict, NotFound, Unavailable
from superinfer_kube.testing.virtual_time import VirtualTime, now_s


@dataclass
class Server:
    """An API server with one Lease; it may be away for some, or answer late."""

    lease: dict | None = None
    version: int = 0
    away_for: set = field(default_factory=set)
    slow_s: float = 0.0

    def store(self, spec):
        self.version += 1
        self.lease = {"metadata": {"name": "l", "resourceVersion": str(self.version)}, "spec": spec}
        return copy.deepcopy(self.lease)


@dataclass
class Line:
    """One process' way to the server."""

    server: Server
    name: str
    calls: int = 0

    async def reach(self):
        self.calls += 1
        await asyncio.sleep(self.server.slow_s)
        if self.name in self.server.away_for:
            raise Unavailable("connection refused")

    async def get(self, resource, name, namespace=None):
        await self.reach()
        if self.server.lease is None:
            raise NotFound("not there")
        return copy.deepcopy(self.server.lease)

    async def create(self, resource, document):
        await self.reach()
        if self.server.lease is not None:
            raise AlreadyExists("there already")
        return self.server.store(document["spec"])

    async def patch(self, resource, name, namespace, change):
        await self.reach()
        if self.server.lease is None:
            raise NotFound("not there")
        if change["metadata"]["resourceVersion"] != self.server.lease["metadata"]["resourceVersion"]:
            raise Conflict("changed meanwhile")
        return self.server.store({**self.server.lease["spec"], **change["spec"]})


class Race:
    """Processes that stand for election, and who worked from when to when."""

    def __init__(self):
        self.server = Server()
        self.worked = []
        self.at_work = set()
        self._tasks = {}
        self.lines = {}

    def start(self, name):
        self.lines[name] = Line(self.server, name)
        election = Election(self.lines[name], namespace="n", name="l", identity=name)
        self._tasks[name] = asyncio.create_task(election.run(lambda: self.work(name)))
        return election

    async def work(self, name):
        assert not self.at_work, f"{name} and {self.at_work} work together"
        self.at_work.add(name)
        began_s = now_s()
        try:
            await asyncio.Event().wait()
        finally:
            self.at_work.discard(name)
            self.worked.append((name, began_s, now_s()))

    async def end(self, name):
        """As SIGTERM does."""
        task = self._tasks[name]
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()

    async def kill(self, name):
        """As SIGKILL does: nothing is said any more."""
        self.server.away_for.add(name)
        await self.end(name)

    async def until_works(self, *names):
        began_s = now_s()
        while not self.at_work & set(names):
            await asyncio.sleep(0.01)
        return now_s() - began_s


@pytest.fixture
def play(monkeypatch):
    def run(scenario):
        async def main():
            monkeypatch.setattr(election_module, "monotonic", now_s)
            race = Race()
            await scenario(race)
            for name in list(race.lines):
                await race.end(name)
            return race

        with asyncio.Runner(loop_factory=VirtualTime) as runner:
            return runner.run(main())

    return run


def test_one_of_several_is_elected_and_stays(play):
    async def scenario(race):
        for name in ("a", "b", "c"):
            race.start(name)
        await race.until_works("a", "b", "c")
        first = set(race.at_work)
        await asyncio.sleep(3600)
        assert race.at_work == first
        assert race.worked == [], "nobody had to give way"

    play(scenario)


def test_a_leader_that_is_killed_is_followed_within_its_lease_and_a_look(play):
    async def scenario(race):
        race.start("a")
        await race.until_works("a")
        race.start("b")
        for after_s in (0.1, 1.0, 1.9, 2.1, 7.3):
            (leader,) = race.at_work
            other = "b" if leader == "a" else "a"
            await asyncio.sleep(60 + after_s)
            await race.kill(leader)
            assert 6 < await race.until_works(other) < 13
            race.server.away_for.clear()
            race.start(leader)

    play(scenario)


def test_a_leader_that_ends_in_order_is_followed_at_the_next_look(play):
    async def scenario(race):
        race.start("a")
        await race.until_works("a")
        race.start("b")
        await asyncio.sleep(60)
        await race.end("a")
        assert await race.until_works("b") < 3

    play(scenario)


def test_a_leader_that_was_killed_and_comes_back_under_its_name_need_not_wait(play):
    async def scenario(race):
        race.start("a")
        await race.until_works("a")
        await race.kill("a")
        race.server.away_for.clear()
        race.start("a")
        assert await race.until_works("a") < 0.1

    play(scenario)


def test_a_leader_that_cannot_reach_the_server_stops_before_another_begins(play):
    async def scenario(race):
        race.start("a")
        await race.until_works("a")
        race.start("b")
        await asyncio.sleep(30)
        race.server.away_for.add("a")
        await race.until_works("b")
        race.server.away_for.clear()
        await asyncio.sleep(60)
        assert race.at_work == {"b"}

    race = play(scenario)
    (_, _, stopped_s), (_, began_s, _) = race.worked
    assert began_s - stopped_s > 1, "too close for a process that is slow to notice"


def test_a_server_that_is_away_for_a_moment_changes_nothing(play):
    async def scenario(race):
        race.start("a")
        await race.until_works("a")
        race.start("b")
        for _ in range(20):
            await asyncio.sleep(20)
            race.server.away_for = {"a", "b"}
            await asyncio.sleep(4)
            race.server.away_for = set()
        assert race.at_work == {"a"}

    assert [name for name, _, _ in play(scenario).worked] == ["a"]


def test_after_a_long_outage_somebody_works_again(play):
    async def scenario(race):
        for name in ("a", "b"):
            race.start(name)
        await race.until_works("a", "b")
        race.server.away_for = {"a", "b"}
        await asyncio.sleep(600)
        assert race.at_work == set(), "what cannot renew must not go on"
        race.server.away_for = set()
        assert await race.until_works("a", "b") < 15

    play(scenario)


@pytest.mark.parametrize("slow_s", [0.5, 3.0])
def test_a_slow_server_never_makes_two_leaders(play, slow_s):
    async def scenario(race):
        race.server.slow_s = slow_s
        for name in ("a", "b", "c"):
            race.start(name)
        for _ in range(10):
            await race.until_works("a", "b", "c")
            await asyncio.sleep(47)

    play(scenario)


def test_somebody_else_s_touch_of_the_lease_costs_no_leadership(play):
    async def scenario(race):
        race.start("a")
        await race.until_works("a")
        for _ in range(5):
            await asyncio.sleep(9.1)
            race.server.store(race.server.lease["spec"])
        assert race.at_work == {"a"}

    assert len(play(scenario).worked) == 1


def test_a_lease_that_was_deleted_is_made_again_by_its_holder(play):
    async def scenario(race):
        for name in ("a", "b"):
            race.start(name)
        await race.until_works("a", "b")
        first = set(race.at_work)
        for _ in range(20):
            await asyncio.sleep(7.3)
            race.server.lease = None
        await asyncio.sleep(30)
        assert race.at_work == first

    play(scenario)


def test_work_that_fails_ends_the_process_s_stand_and_frees_the_lease(play):
    async def scenario(race):
        async def failing():
            raise ValueError("a mistake")

        election = Election(Line(race.server, "x"), namespace="n", name="l", identity="x")
        with pytest.raises(ValueError, match="a mistake"):
            await election.run(failing)
        race.start("a")
        assert await race.until_works("a") < 0.1

    play(scenario)


def test_who_stands_by_asks_seldom(play):
    async def scenario(race):
        race.start("a")
        await race.until_works("a")
        race.start("b")
        await asyncio.sleep(60)
        assert race.lines["a"].calls <= 35
        assert race.lines["b"].calls <= 45

    play(scenario)
