"""A request that comes from elsewhere gets its blocks before the engine gets it, and never waits for long."""

import socket

import pytest

from superinfer_core.prediction.step_model import StepModel
from superinfer_proto.v1 import checkpoint_pb2, sidecar_pb2, slo_pb2, work_pb2
from superinfer_sidecar.checkpoint.counters import Rejected, Restore

BLOCK = 16
PROMPT = "words " * 20 * BLOCK + "and half a block of words more. "
WHOLE = 30
"""Its whole blocks: four letters are a token of the stub, and four tokens begin a message."""


@pytest.fixture
def silent(tmp_path):
    """The address of somebody who takes connections and says nothing."""
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield f"unix:{path}"


@pytest.fixture
def dear(monkeypatch):
    """What prefill costs by prediction, in milliseconds per token."""

    def set_to(executor, per_token_ms):
        planner = executor.sidecar.desk.planner
        monkeypatch.setattr(
            type(planner.steps), "model", property(lambda _: StepModel(1.0, 0.0, 0.0, per_token_ms))
        )

    return set_to


def resumed(submit_of, body_of, *holders, **more):
    delivered = [slo_pb2.TokenGroup(choice=0, first_token=0, token_ids=[1])]
    return submit_of(
        "r",
        attempt=2,
        body=body_of(20, words=PROMPT),
        delivered=delivered,
        checkpoint_holders=list(holders),
        admission=2,
        **more,
    )


def held(executor, tools):
    return executor.unit.store.streams.contiguous(tools.stream_of("r", 0), executor.unit.store.has)


async def saved(executor, tools, blocks, request_id="r"):
    hashes = [executor.writer.save(request_id, number) for number in range(blocks)]
    await tools.until(lambda: executor.unit.increments.has(hashes[-1]), "the increments")
    return hashes


async def test_blocks_are_here_before_the_engine_gets_the_request(pool, tools, submit_of, body_of, dear):
    first, second = await pool.start("a"), await pool.start("b")
    dear(second, 10.0)
    hashes = await saved(first, tools, 6)
    given = []
    submit = second.sidecar.desk.engine.submit
    second.sidecar.desk.engine.submit = lambda work: (given.append(held(second, tools)), submit(work))
    await second.submit(resumed(submit_of, body_of, first.address))
    await second.final("r")
    assert given == [hashes]
    assert second.counters.restores[Restore.WHOLE] == 1
    assert first.counters.served_blocks == 6


async def test_the_holder_with_most_blocks_is_asked_for_them(pool, tools, submit_of, body_of, dear):
    first, second, third = [await pool.start(name) for name in "abc"]
    dear(third, 10.0)
    await saved(first, tools, 2)
    hashes = await saved(second, tools, 5)
    await third.submit(resumed(submit_of, body_of, first.address, "unix:/gone.sock", second.address))
    await third.final("r")
    assert first.counters.served_blocks == 0
    assert second.counters.served_blocks == len(hashes)


async def test_only_what_is_not_here_is_fetched(pool, tools, submit_of, body_of, dear):
    first, second = await pool.start("a"), await pool.start("b")
    dear(second, 10.0)
    await first.know(first, second)
    hashes = await saved(first, tools, 4)
    await tools.until(lambda: held(second, tools) == hashes, "the copies")
    await first.know(first)
    more = [first.writer.save("r", number) for number in (4, 5)]
    await tools.until(lambda: first.unit.increments.has(more[-1]), "the increments")
    await second.submit(resumed(submit_of, body_of, first.address))
    await second.final("r")
    assert first.counters.served_blocks == 2


async def test_half_a_block_is_fetched_where_nothing_else_is_missing(pool, tools, submit_of, body_of, dear):
    first, second = await pool.start("a"), await pool.start("b")
    await first.know(first, second)
    hashes = await saved(first, tools, WHOLE)
    await tools.until(lambda: held(second, tools) == hashes, "the copies")
    await first.know(first)
    tail = first.writer.save("r", WHOLE, tail_tokens=BLOCK // 2)
    await tools.until(lambda: first.unit.increments.has(tail), "the increment")
    dear(second, 10.0)
    await second.submit(resumed(submit_of, body_of, first.address))
    await second.final("r")
    assert (first.counters.served_blocks, second.counters.fetched_blocks) == (1, 1)
    assert second.counters.restores[Restore.WHOLE] == 1


async def test_what_all_is_here_is_counted_and_nobody_asked(pool, tools, submit_of, body_of, dear):
    first, second = await pool.start("a"), await pool.start("b")
    dear(second, 10.0)
    await first.know(first, second)
    hashes = [*await saved(first, tools, WHOLE), first.writer.save("r", WHOLE, tail_tokens=BLOCK // 2)]
    store = second.unit.store
    await tools.until(lambda: store.streams.held(tools.stream_of("r", 0), store.has) == hashes, "the copies")
    await second.submit(resumed(submit_of, body_of, first.address))
    await second.final("r")
    assert first.counters.served_blocks == 0
    assert second.counters.restores[Restore.OWN] == 1


async def test_blocks_saved_here_and_blocks_fetched_are_one_stream(pool, tools, submit_of, body_of, dear):
    first, second = await pool.start("a"), await pool.start("b")
    dear(second, 10.0)
    await saved(second, tools, 2)
    await saved(first, tools, 6)
    located = []
    submit = second.sidecar.desk.engine.submit

    def look(work):
        located.append(second.unit._holdings.blocks(tools.layout, tools.stream_of("r", 0)))
        submit(work)

    second.sidecar.desk.engine.submit = look
    await second.submit(resumed(submit_of, body_of, first.address))
    await second.final("r")
    assert first.counters.served_blocks == 4
    assert located == [6]
    assert second.counters.restores[Restore.WHOLE] == 1


async def test_a_holder_that_does_not_answer_costs_no_more_than_recomputing(
    pool, submit_of, body_of, dear, silent
):
    second = await pool.start("b")
    dear(second, 0.2)
    await second.submit(resumed(submit_of, body_of, silent))
    await second.final("r")
    assert second.counters.restores[Restore.NONE] == 1


async def test_nobody_is_asked_where_recomputing_is_cheap(pool, tools, submit_of, body_of, dear):
    first, second = await pool.start("a"), await pool.start("b")
    dear(second, 1e-6)
    await saved(first, tools, 3)
    await second.submit(resumed(submit_of, body_of, first.address))
    await second.final("r")
    assert first.counters.served_blocks == 0
    assert second.counters.restores[Restore.CHEAP] == 1


async def test_a_cancel_while_restoring_ends_it(pool, tools, submit_of, body_of, dear, silent):
    second = await pool.start("b")
    dear(second, 1000.0)
    await second.submit(resumed(submit_of, body_of, silent))
    desk = second.sidecar.desk
    await tools.until(
        lambda: any(each.restoring for each in desk.book.queued.values()), "the restore to begin"
    )
    cancel = work_pb2.Cancel(request_id="r", attempt=2)
    await second.call.write(sidecar_pb2.ToSidecar(cancels=[cancel]))
    await tools.until(lambda: not second.unit._restoring and not desk.book.by_id, "everything to be gone")


async def test_blocks_of_another_layout_are_not_even_asked_for(pool, tools, submit_of, body_of, dear):
    first, second = await pool.start("a", layout="another model"), await pool.start("b")
    dear(second, 10.0)
    await saved(first, tools, 3)
    await first.know(first, second)
    await second.submit(resumed(submit_of, body_of, first.address))
    await second.final("r")
    await tools.until(lambda: second.counters.rejected[Rejected.FOREIGN], "the refusal of its copies")
    assert second.unit.store.blocks == 0
    answer = await first.stub().Locate(
        checkpoint_pb2.LocateRequest(layout=tools.layout, streams=[tools.stream_of("r", 0)])
    )
    assert list(answer.contiguous_blocks) == [0]
