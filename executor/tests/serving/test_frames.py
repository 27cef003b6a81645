"""A step's outputs leave together, whatever the order its requests settle in."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_executor.serving.frames import FrameAssembler
from superinfer_executor.serving.run_stream import RunStream
from superinfer_proto.v1 import work_pb2


class Sink:
    def __init__(self) -> None:
        self.frames: list[work_pb2.Frame] = []

    def send(self, frame: work_pb2.Frame) -> None:
        self.frames.append(frame)

    def ids(self) -> list[list[str]]:
        return [[output.request_id for output in frame.outputs] for frame in self.frames]


def output(request_id: str) -> work_pb2.Output:
    return work_pb2.Output(request_id=request_id, token_ids=[1])


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def assembler(
    sink: Sink,
    *,
    is_running: Callable[[str], bool] = lambda _: True,
    facts: list[work_pb2.StepFacts] | None = None,
) -> FrameAssembler:
    kept = facts if facts is not None else []

    def take() -> list[work_pb2.StepFacts]:
        taken = kept[:]
        kept.clear()
        return taken

    made = FrameAssembler(asyncio.get_running_loop(), is_running=is_running, take_facts=take)
    made.add_sink(sink)
    return made


async def test_the_frame_waits_for_the_last_request_of_its_step() -> None:
    frames = assembler(sink := Sink())
    frames.begin_step(["a", "b"])
    frames.add(sink, output("b"))
    frames.settle("b")
    await turn()
    assert sink.frames == []
    frames.add(sink, output("a"))
    frames.settle("a")
    assert sink.ids() == [["b", "a"]]


async def test_the_next_step_waits_until_this_one_has_left() -> None:
    frames = assembler(sink := Sink())
    frames.begin_step(["a"])
    waiting = asyncio.create_task(frames.ready())
    await turn()
    assert not waiting.done()
    frames.add(sink, output("a"))
    frames.settle("a")
    await waiting
    frames.begin_step(["a"])
    frames.add(sink, output("a"))
    frames.settle("a")
    assert [frame.step for frame in sink.frames] == [1, 2]


async def test_a_request_that_never_settles_holds_nobody_up_for_long() -> None:
    frames = assembler(sink := Sink())
    frames.begin_step(["stuck", "a"])
    frames.add(sink, output("a"))
    frames.settle("a")
    await asyncio.wait_for(frames.ready(), 5)
    assert sink.ids() == [["a"]]


async def test_requests_that_are_gone_are_not_waited_for() -> None:
    frames = assembler(sink := Sink(), is_running=lambda engine_id: engine_id != "gone")
    frames.begin_step(["gone", "a"])
    frames.add(sink, output("a"))
    frames.settle("a")
    assert sink.ids() == [["a"]]


async def test_an_output_between_steps_leaves_at_the_end_of_the_turn() -> None:
    frames = assembler(sink := Sink())
    frames.add(sink, output("error"))
    frames.add(sink, output("another"))
    assert sink.frames == []
    await turn()
    assert sink.ids() == [["error", "another"]]


async def test_facts_reach_every_sink_oldest_first() -> None:
    kept = [work_pb2.StepFacts(step_ms=number) for number in (1, 2, 3)]
    frames = assembler(sink := Sink(), facts=kept)
    frames.add_sink(idle := Sink())
    frames.begin_step(["a"])
    frames.add(sink, output("a"))
    frames.settle("a")
    for each in (sink, idle):
        assert [frame.facts.step_ms for frame in each.frames] == [1, 2, 3]
    assert sink.ids() == [[], [], ["a"]]


async def test_a_sink_that_left_gets_nothing_and_hurts_nobody() -> None:
    frames = assembler(sink := Sink())
    frames.begin_step(["a"])
    frames.remove_sink(sink)
    frames.add(sink, output("a"))
    frames.settle("a")
    assert sink.frames == []


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.lists(st.sampled_from("abcdef"), unique=True), max_size=12), data=st.data())
def test_every_output_leaves_once_in_the_frame_of_its_step(
    steps: list[list[str]], data: st.DataObject
) -> None:
    async def play() -> None:
        frames = assembler(sink := Sink())
        for engine_ids in steps:
            frames.begin_step(engine_ids)
            for engine_id in data.draw(st.permutations(engine_ids)):
                frames.add(sink, output(engine_id))
                frames.settle(engine_id)
        frames.flush_now()
        assert [set(ids) for ids in sink.ids()] == [set(ids) for ids in steps if ids]
        assert all(len(set(ids)) == len(ids) for ids in sink.ids())

    asyncio.run(play())


async def test_a_reader_that_does_not_keep_up_loses_its_stream() -> None:
    stream = RunStream(max_queued=3)
    written: list[work_pb2.Frame] = []

    async def write(message: object) -> None:
        written.append(message)

    for number in range(3):
        stream.send(work_pb2.Frame(step=number))
    writing = asyncio.create_task(stream.write_to(SimpleNamespace(write=write)))
    await turn()
    assert [message.frame.step for message in written] == [0, 1, 2]
    for number in range(4):
        stream.send(work_pb2.Frame(step=number))
    with pytest.raises(ConnectionError):
        await writing
