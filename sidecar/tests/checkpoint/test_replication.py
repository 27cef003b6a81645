"""Copies of increments on a peer, over real gRPC: in order, bounded, gone on with after a break, ended."""

from superinfer_proto.v1 import checkpoint_pb2, sidecar_pb2
from superinfer_sidecar.checkpoint.counters import Rejected


def held(executor, tools, request_id):
    return executor.unit.store.streams.contiguous(tools.stream_of(request_id, 0), executor.unit.store.has)


async def paired(pool, tools, **more):
    first, second = await pool.start("a", **more), await pool.start("b", **more)
    await first.know(first, second)
    return first, second


async def test_new_blocks_reach_a_peer_and_the_report_says_where_they_are(pool, tools):
    first, second = await paired(pool, tools)
    hashes = [first.writer.save("r", number) for number in range(5)]
    await tools.until(lambda: held(second, tools, "r") == hashes, "the copies")
    header, payload = second.unit.store.read(hashes[3])
    assert payload == tools.payload_of(hashes[3])
    assert header.seal == tools.seal_of(tools.layout, hashes[3], payload)
    await tools.until(lambda: first.loads[-1].checkpoint_peers == ["a", "b"], "the report to say so")
    await tools.until(lambda: first.unit.replicator.lag_blocks == 0, "no lag")


async def test_a_block_two_requests_share_travels_once_and_stays_while_one_needs_it(pool, tools):
    first, second = await paired(pool, tools)
    shared = first.writer.save("r", 0)
    await tools.until(lambda: held(second, tools, "r"), "the copy")
    first.writer.refer("other", 0, shared)
    await tools.until(lambda: held(second, tools, "other") == [shared], "the reference")
    assert first.counters.sent_blocks == 1
    second.unit.store.end("a", tools.stream_of("r", 0))
    second.unit.store.expire()
    assert held(second, tools, "other") == [shared]
    second.unit.store.end("a", tools.stream_of("other", 0))
    second.unit.store.expire()
    assert not second.unit.store.has(shared)
    assert second.counters.erased_blocks == 1


async def test_a_tail_travels_until_its_block_is_full(pool, tools):
    first, second = await paired(pool, tools)
    stream, store = tools.stream_of("r", 0), second.unit.store
    whole = first.writer.save("r", 0)
    tail = first.writer.save("r", 1, salt="half", tail_tokens=16)
    await tools.until(lambda: store.streams.held(stream, store.has) == [whole, tail], "the tail")
    assert held(second, tools, "r") == [whole], "it is no whole block"
    full = first.writer.save("r", 1)
    await tools.until(lambda: store.streams.held(stream, store.has) == [whole, full], "the block")
    store.expire()
    assert not store.has(tail)
    assert second.counters.rejected.total() == 0


async def test_a_peer_that_was_away_gets_what_it_lacks_once_it_is_back(pool, tools):
    first, second = await paired(pool, tools)
    before = [first.writer.save("r", number) for number in range(3)]
    await tools.until(lambda: held(second, tools, "r") == before, "the copies")
    await second.sidecar._server.stop(grace=0)
    await tools.until(lambda: first.counters.broken_streams, "the break to be noticed")
    more = [first.writer.save("r", number) for number in range(3, 6)]
    await tools.until(lambda: first.counters.seen_blocks == 6, "the increments to be seen")
    pool.executors.remove(second)
    await second.close()
    again = await pool.start("c")
    await first.know(first, again)
    await tools.until(lambda: held(again, tools, "r") == before + more, "everything on the new peer")


async def test_copies_go_on_after_a_broken_stream(pool, tools):
    first, second = await paired(pool, tools)
    hashes = [first.writer.save("r", 0)]
    await tools.until(lambda: held(second, tools, "r") == hashes, "the copy")
    for link in first.unit.replicator._links.values():
        link.task.cancel()
        link.start()
    hashes += [first.writer.save("r", number) for number in range(1, 4)]
    await tools.until(lambda: held(second, tools, "r") == hashes, "the rest")
    assert second.counters.rejected[Rejected.CORRUPT] == 0


async def test_a_peer_in_the_same_fault_domain_gets_nothing(pool, tools):
    first, second, third = [await pool.start(name, policy="OtherNode") for name in "abc"]
    domains = {"a": ["zone/z", "node/n1"], "b": ["zone/z", "node/n1"], "c": ["zone/z", "node/n2"]}
    await first.know(first, second, third, domains=domains)
    hashes = [first.writer.save("r", 0)]
    await tools.until(lambda: held(third, tools, "r") == hashes, "the copy on the other node")
    assert not held(second, tools, "r")


async def test_nobody_keeps_copies_where_no_other_node_is_known(pool, tools):
    first, second = [await pool.start(name, policy="OtherNode") for name in "ab"]
    await first.know(first, second)
    first.writer.save("r", 0)
    await tools.until(lambda: first.counters.seen_blocks == 1, "the increment")
    assert first.unit.replicator.holders == []
    assert first.counters.sent_blocks == 0


async def test_a_full_peer_takes_no_more_and_says_so(pool, tools):
    first = await pool.start("a", slots=64)
    second = await pool.start("b", memory_bytes=4 * (tools.payload_bytes + 8192))
    room = second.unit.store.slab.shape.slots
    await first.know(first, second)
    for number in range(room + 3):
        first.writer.save("r", number)
    await tools.until(lambda: second.counters.rejected[Rejected.NO_ROOM] == 3, "the refusals")
    assert len(held(second, tools, "r")) == room


async def test_a_request_that_ends_is_erased_everywhere(pool, tools, submit_of, body_of):
    first, second = await paired(pool, tools)
    await first.submit(submit_of("r", body=body_of(200)))
    await tools.until(lambda: first.outputs, "its first token")
    block_hash = first.writer.save("r", 0)
    await tools.until(lambda: held(second, tools, "r"), "the copy")
    await first.final("r")
    await tools.until(lambda: not second.unit.store.has(block_hash), "the copy to be erased")
    slot = second.unit.store.slab.payload(0)
    assert bytes(slot) == bytes(len(slot))
    assert tools.stream_of("r", 0) not in first.unit.increments.streams


async def test_a_request_whose_engine_died_keeps_its_blocks_for_whoever_goes_on(
    pool, tools, submit_of, body_of
):
    first, second = await paired(pool, tools)
    await first.submit(submit_of("r", body=body_of(5000)))
    await tools.until(lambda: first.outputs, "its first token")
    hashes = [first.writer.save("r", number) for number in range(3)]
    await tools.until(lambda: held(second, tools, "r") == hashes, "the copies")
    first.writer.die()
    await first.engine_server.stop(grace=0)
    await first.final("r")
    third = await pool.start("c")
    located = await first.stub().Locate(
        checkpoint_pb2.LocateRequest(layout=tools.layout, streams=[tools.stream_of("r", 0)])
    )
    assert list(located.contiguous_blocks) == [3]
    await third.submit(submit_of("r", attempt=2, checkpoint_holders=[first.address, second.address]))
    await third.final("r")
    assert held(second, tools, "r") == hashes


async def test_what_a_dead_engine_left_is_erased_once_nobody_wants_it(pool, tools, submit_of, body_of):
    executor = await pool.start("a", orphan_s=0.0)
    await executor.submit(submit_of("r", body=body_of(5000)))
    await tools.until(lambda: executor.outputs, "its first token")
    executor.writer.save("r", 0)
    executor.writer.save("of nobody we know", 0)
    await tools.until(lambda: executor.counters.seen_blocks == 2, "the increments")
    executor.writer.die()
    await executor.engine_server.stop(grace=0)
    await executor.final("r")
    slab = executor.unit.increments.slab
    await tools.until(lambda: not list(slab.scan()), "it to be erased")
    assert bytes(slab.payload(0)) == bytes(tools.payload_bytes)


async def test_a_peer_that_is_not_there_costs_a_bounded_list_and_is_said(pool, tools):
    first = await pool.start("a")
    peers = [sidecar_pb2.Peer(executor="x", address="unix:/nowhere/sidecar.sock")]
    await first.call.write(sidecar_pb2.ToSidecar(peers=sidecar_pb2.PeerList(peers=peers)))
    first.writer.save("r", 0)
    await tools.until(lambda: first.counters.broken_streams > 1, "attempts to reach it")
    assert first.unit.replicator.lag_blocks == 1
    assert first.unit.replicator.holders == []
