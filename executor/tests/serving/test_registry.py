"""Fencing: only the highest attempt of a request speaks."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_executor.serving.registry import StreamRegistry


class FakeStream:
    def __init__(self, request_id: str, attempt: int, owner: object = None) -> None:
        self.request_id = request_id
        self.attempt = attempt
        self.owner = owner
        self.cancelled = False
        self.engine_ids = {f"{request_id}/{attempt}/0"}
        self.finish = asyncio.Event()

    async def run(self) -> None:
        await self.finish.wait()


def start(registry: StreamRegistry, stream: FakeStream) -> bool:
    if not registry.admit(stream.request_id, stream.attempt):
        return False
    for engine_id in stream.engine_ids:
        registry.claim(engine_id, stream)
    registry.start(stream)
    return True


async def test_a_higher_attempt_stops_the_lower_one() -> None:
    registry = StreamRegistry()
    first, second = FakeStream("r", 1), FakeStream("r", 2)
    assert start(registry, first)
    assert start(registry, second)
    assert (first.cancelled, second.cancelled) == (True, False)
    assert registry.find("r/1/0") is None
    assert registry.find("r/2/0") is second


async def test_a_lower_or_equal_attempt_is_dropped_also_when_it_comes_late() -> None:
    registry = StreamRegistry()
    running = FakeStream("r", 3)
    assert start(registry, running)
    assert not start(registry, FakeStream("r", 2))
    assert not start(registry, FakeStream("r", 3))
    running.finish.set()
    await registry.wait_until_idle()
    assert not start(registry, FakeStream("r", 3))
    assert start(registry, FakeStream("r", 4))


async def test_a_cancel_stops_its_attempt_and_lower_ones_and_keeps_them_out() -> None:
    registry = StreamRegistry()
    running = FakeStream("r", 2)
    start(registry, running)
    registry.cancel("r", 1)
    assert not running.cancelled, "a cancel of an attempt before this one"
    registry.cancel("r", 2)
    assert running.cancelled
    registry.cancel("early", 1)
    assert not start(registry, FakeStream("early", 1)), "the cancel overtook its submit"


async def test_what_a_lost_sidecar_asked_for_stops_and_may_come_back() -> None:
    registry = StreamRegistry()
    lost, kept = FakeStream("lost", 1, owner="a"), FakeStream("kept", 1, owner="b")
    start(registry, lost)
    start(registry, kept)
    registry.cancel_all_of("a")
    assert (lost.cancelled, kept.cancelled) == (True, False)
    assert start(registry, FakeStream("lost", 2))


async def test_memory_of_attempts_is_bounded() -> None:
    registry = StreamRegistry(remembered=2)
    for request_id in ("a", "b", "c"):
        registry.cancel(request_id, 5)
    assert not registry.admit("c", 5)
    assert registry.admit("a", 1), "forgotten: the oldest of three"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.booleans()), max_size=20))
def test_at_most_one_attempt_of_a_request_runs_and_it_is_the_highest(
    steps: list[tuple[str, int, bool]],
) -> None:
    async def play() -> None:
        registry = StreamRegistry()
        highest: dict[str, int] = {}
        for request_id, attempt, cancels in steps:
            if cancels:
                registry.cancel(request_id, attempt)
            else:
                start(registry, FakeStream(request_id, attempt))
            highest[request_id] = max(attempt, highest.get(request_id, -1))
            running = [(stream.request_id, stream.attempt) for stream in registry]
            assert len(dict(running)) == len(running)
            assert all(attempt == highest[request_id] for request_id, attempt in running)
        for stream in registry:
            registry.cancel(stream.request_id, stream.attempt)

    asyncio.run(play())
