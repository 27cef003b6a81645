"""Increments that are damaged, cut, mixed up, old or of somebody else: counted, never kept, never sent."""

import random

import grpc
import pytest

from superinfer_proto.slab import SlabInvalid
from superinfer_proto.v1 import checkpoint_pb2
from superinfer_sidecar.checkpoint.counters import CheckpointCounters, Rejected
from superinfer_sidecar.checkpoint.store import Store

ROUNDS = 400


@pytest.fixture
async def store(tmp_path, tools):
    made = Store(
        tmp_path / "store.slab", 32 * (tools.payload_bytes + 8192), CheckpointCounters(), lambda: 0.0
    )
    await made.fit(tools.layout, tools.payload_bytes, orphan_s=10.0)
    yield made
    made.close()


@pytest.fixture
def increment_of(tools):
    def make(number=0, *, request_id="r", salt="", layout=None, **changed):
        block_hash = tools.hash_of(salt, request_id, number)
        payload = tools.payload_of(block_hash)
        fields = {
            "block_hash": block_hash,
            "payload": payload,
            "seal": tools.seal_of(layout or tools.layout, block_hash, payload),
            "stream": tools.stream_of(request_id, 0),
            "ordinal": number,
        }
        return checkpoint_pb2.Increment(**{**fields, **changed})

    return make


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


CHANGES = {
    "a flipped bit": (lambda i, _: {"payload": flipped(i.payload, 4999)}, Rejected.CORRUPT),
    "a flipped bit of the hash": (lambda i, _: {"block_hash": flipped(i.block_hash, 0)}, Rejected.CORRUPT),
    "cut short": (lambda i, _: {"payload": i.payload[:-1]}, Rejected.CORRUPT),
    "too long": (lambda i, _: {"payload": i.payload + b"x"}, Rejected.CORRUPT),
    "zeros": (lambda i, _: {"payload": bytes(len(i.payload))}, Rejected.CORRUPT),
    "another seal": (lambda i, _: {"seal": i.seal ^ 1}, Rejected.CORRUPT),
    "payloads mixed up": (lambda _, other: {"payload": other.payload}, Rejected.CORRUPT),
    "payload and seal of another block": (
        lambda _, other: {"payload": other.payload, "seal": other.seal},
        Rejected.CORRUPT,
    ),
    "no hash": (lambda *_: {"block_hash": b""}, Rejected.MALFORMED),
    "a hash beyond bounds": (lambda *_: {"block_hash": bytes(33)}, Rejected.MALFORMED),
    "a number beyond bounds": (lambda *_: {"ordinal": 2**32 - 1}, Rejected.MALFORMED),
    "more tokens than a block may have": (lambda *_: {"tail_tokens": 2**16}, Rejected.MALFORMED),
    "only a reference": (lambda *_: {"payload": b""}, Rejected.MISSING),
}


@pytest.mark.parametrize(("change", "reason"), CHANGES.values(), ids=CHANGES)
def test_what_is_not_right_is_refused_and_counted(store, increment_of, change, reason):
    good, other = increment_of(0), increment_of(1)
    bad = increment_of(0, **change(good, other))
    assert store.put(bad, store.slab.shape.layout, "peer") is reason
    assert store._counters.rejected == {reason: 1}
    assert store.blocks == 0
    assert store.read(good.block_hash) is None


def test_a_seal_of_another_layout_does_not_fit(store, increment_of, tools):
    foreign = increment_of(0, layout="another model")
    assert store.put(foreign, tools.layout, "peer") is Rejected.CORRUPT
    assert store.put(increment_of(0), "another model", "peer") is Rejected.FOREIGN


def test_the_same_tokens_of_two_tenants_are_two_blocks(store, increment_of, tools):
    ours, theirs = increment_of(0, salt="ours"), increment_of(0, salt="theirs", request_id="r")
    assert store.put(ours, tools.layout, "peer") is None
    assert not store.has(theirs.block_hash)
    assert store.put(checkpoint_pb2.Increment(block_hash=theirs.block_hash), tools.layout, "peer") is (
        Rejected.MISSING
    )


def test_memory_that_is_damaged_later_is_noticed_when_it_is_read(store, increment_of, tools):
    increment = increment_of(0)
    store.put(increment, tools.layout, "peer")
    store.slab.payload(store._table.find(increment.block_hash))[7] ^= 1
    assert store.read(increment.block_hash) is None
    assert not store.has(increment.block_hash)
    assert store._counters.rejected == {Rejected.CORRUPT: 1}
    assert store.put(increment, tools.layout, "peer") is None, "the right one is taken again"


def test_any_mixture_of_good_and_bad_leaves_only_good_blocks(store, increment_of, tools):
    chance = random.Random(20)
    good = {}
    for _ in range(ROUNDS):
        number = chance.randrange(24)
        increment = increment_of(number)
        good[increment.block_hash] = increment.payload
        raw = bytearray(increment.SerializeToString())
        for _ in range(chance.choice((0, 0, 1, 3))):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        try:
            received = checkpoint_pb2.Increment.FromString(bytes(raw))
        except Exception:  # noqa: BLE001 - protobuf's own; gRPC refuses such a message
            continue
        store.put(received, tools.layout, "peer")
        if chance.random() < 0.1:
            store.end("peer", increment.stream)
            store.expire()
    kept = [block_hash for block_hash in good if store.has(block_hash)]
    assert kept
    for block_hash in kept:
        assert store.read(block_hash)[1] == good[block_hash]
    assert store._counters.rejected[Rejected.CORRUPT] > 0


async def test_batches_that_come_twice_or_late_change_nothing(pool, tools, increment_of):
    executor = await pool.start("a")
    call = executor.stub().Replicate()
    await call.write(checkpoint_pb2.ReplicateBatch(executor="x", session=1, layout=tools.layout))
    assert (await call.read()).sequence == 0
    batches = [
        checkpoint_pb2.ReplicateBatch(layout=tools.layout, sequence=n, increments=[increment_of(n)])
        for n in (1, 2)
    ]
    for batch in (*batches, *batches):
        await call.write(batch)
        ack = await call.read()
    assert ack.sequence == 2
    assert executor.unit.store.blocks == 2
    assert executor.counters.rejected[Rejected.REPLAYED] == 2
    call.cancel()
    again = executor.stub().Replicate()
    await again.write(checkpoint_pb2.ReplicateBatch(executor="x", session=1, layout=tools.layout))
    assert (await again.read()).sequence == 2, "a sender learns from where to go on"
    again.cancel()


@pytest.mark.parametrize(
    ("greeting", "code"),
    [
        pytest.param({"executor": ""}, grpc.StatusCode.INVALID_ARGUMENT, id="nobody sends"),
        pytest.param({"executor": "x" * 300}, grpc.StatusCode.INVALID_ARGUMENT, id="an endless name"),
        pytest.param({"layout": "other"}, grpc.StatusCode.FAILED_PRECONDITION, id="another layout"),
    ],
)
async def test_a_senseless_greeting_ends_the_stream(pool, tools, greeting, code):
    executor = await pool.start("a")
    call = executor.stub().Replicate()
    fields = {"executor": "x", "session": 1, "layout": tools.layout, **greeting}
    await call.write(checkpoint_pb2.ReplicateBatch(**fields))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert refused.value.code() is code


async def test_an_engine_slab_that_is_damaged_is_never_passed_on(pool, tools):
    first, second = await pool.start("a"), await pool.start("b")
    good = first.writer.save("r", 0)
    bad = first.writer.save("r", 1)
    first.writer.slab.payload(1)[0] ^= 1
    await first.know(first, second)
    await tools.until(lambda: second.unit.store.has(good), "the copy")
    await tools.until(lambda: first.counters.rejected[Rejected.GONE] == 1, "the refusal to send it")
    assert not second.unit.store.has(bad)


async def test_a_file_that_is_no_slab_takes_nothing_down(pool, tools, submit_of):
    executor = await pool.start("a")
    executor.writer.save("r", 0)
    (executor.shared / "new").write_bytes(b"x" * 100_000)
    (executor.shared / "new").rename(executor.shared / "engine.slab")
    await executor.submit(submit_of("q"))
    await executor.final("q")
    with pytest.raises(SlabInvalid):
        tools.Writer(executor.shared, slots=0)
