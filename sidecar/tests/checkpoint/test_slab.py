"""The shared memory itself: what a killed writer, a slow reader and a damaged file can and cannot do."""

import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from superinfer_proto.slab import Happened, Slab, SlabInvalid, SlabShape, seal_of, stream_of

SHAPE = SlabShape("layout", 3000, 8)

ENDLESS_WRITER = """
import sys
from pathlib import Path
from superinfer_proto.slab import Slab, SlabShape, seal_of
slab = Slab.adopt(Path(sys.argv[1]), SlabShape("layout", 3000, 8), generation=1)
print("writing", flush=True)
number = 0
while True:
    slot, block_hash = number % 8, number.to_bytes(32, "big")
    payload = bytes([number % 251]) * 3000
    slab.clear(slot)
    slab.payload(slot)[:] = payload
    slab.publish(slot, block_hash, seal_of("layout", block_hash, payload), number, number % 1000)
    number += 1
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "engine.slab"


def save(slab, slot, name, ordinal=0):
    payload = name * (3000 // len(name))
    slab.clear(slot)
    slab.payload(slot)[: len(payload)] = payload
    seal = seal_of("layout", name, slab.payload(slot))
    return slab.publish(slot, name, seal, 1, ordinal)


def test_a_block_is_read_back_in_another_mapping(path):
    writer = Slab.adopt(path, SHAPE, generation=5)
    sequence = save(writer, 3, b"abc", ordinal=7)
    reader = Slab.open(path)
    assert reader.shape == SHAPE
    header, payload = reader.copy_of(3, sequence)
    assert (header.block_hash, header.ordinal, header.stream) == (b"abc", 7, 1)
    assert payload == b"abc" * 1000
    entries, missed = reader.entries(0)
    assert [(e.slot, e.kind) for e in entries] == [(3, Happened.STORED)]
    assert not missed


def test_an_erased_block_is_nowhere_in_the_file(path):
    slab = Slab.adopt(path, SHAPE, generation=1)
    sequence = save(slab, 0, b"secret")
    assert b"secretsecret" in path.read_bytes()
    slab.erase(0)
    assert b"secretsecret" not in path.read_bytes()
    assert slab.copy_of(0, sequence) is None
    assert list(slab.scan()) == []


def test_a_slot_that_was_given_away_says_so(path):
    slab = Slab.adopt(path, SHAPE, generation=1)
    first = save(slab, 0, b"one")
    second = save(slab, 0, b"two")
    assert not slab.holds(0, first)
    assert slab.copy_of(0, first) is None
    assert slab.copy_of(0, second)[0].block_hash == b"two"


def test_a_reader_that_was_outrun_knows_it(path):
    slab = Slab.adopt(path, SHAPE, generation=1)
    for number in range(SHAPE.journal_entries + 10):
        save(slab, number % 8, bytes([number]))
    entries, missed = slab.entries(0)
    assert missed
    assert len(entries) == SHAPE.journal_entries
    assert not slab.entries(entries[-1].sequence - 3)[1]


def test_one_writer_at_a_time_and_the_next_finds_what_the_first_left(path):
    first = Slab.adopt(path, SHAPE, generation=1)
    save(first, 0, b"one")
    other = Slab.open(path, writable=True)
    assert not other.lock()
    first.close()
    assert other.lock()
    other.close()
    again = Slab.adopt(path, SHAPE, generation=2)
    assert [header.block_hash for _, header in again.scan()] == [b"one"]
    assert again.head == 1


def test_another_layout_or_a_slab_in_use_is_never_taken_over(path):
    first = Slab.adopt(path, SHAPE, generation=1)
    save(first, 0, b"one")
    for shape in (replace(SHAPE, layout="other"), SHAPE):
        taken = Slab.adopt(path, shape, generation=2)
        assert list(taken.scan()) == []
        assert taken.inode != first.inode
        taken.close()
    assert first.copy_of(0, 1)[0].block_hash == b"one", "whoever has mapped it goes on reading"


def test_a_writer_killed_at_any_moment_leaves_only_whole_blocks(path):
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", ENDLESS_WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout.readline() == "writing\n"
        reader = Slab.open(path)
        while reader.head < 300:
            pass
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = [reader.copy_of(slot, header.sequence) for slot, header in reader.scan()]
        assert len(found) >= 7
        assert None not in found
        reader.close()
        successor = Slab.adopt(path, SHAPE, generation=9)
        assert successor.head >= max(header.sequence for _, header in successor.scan())
        successor.close()
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(lambda data: b"", "too short", id="empty"),
        pytest.param(lambda data: data[:9000], "cut short", id="cut"),
        pytest.param(lambda data: b"XXXXXXXX" + data[8:], "no slab", id="something else"),
        pytest.param(lambda data: data[:8] + b"\xff" * 8 + data[16:], "make no sense", id="endless slots"),
        pytest.param(lambda data: data[:40] + b"\xff" * 8 + data[48:], "unreadable", id="a layout of noise"),
    ],
)
def test_a_file_that_is_no_slab_says_why(path, damage, says):
    Slab.create(path, SHAPE, generation=1).close()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SlabInvalid, match=says):
        Slab.open(path)


def test_noise_anywhere_never_gives_a_wrong_block(path):
    slab = Slab.adopt(path, SHAPE, generation=1)
    good = {}
    for slot in range(8):
        name = bytes([65 + slot]) * 32
        good[name] = (save(slab, slot, name), bytes(slab.payload(slot)))
    whole = path.read_bytes()
    slab.close()
    chance = random.Random(7)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4, 64))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            damaged = Slab.open(path)
        except SlabInvalid:
            continue
        damaged.entries(0)
        for slot, header in damaged.scan():
            found = damaged.copy_of(slot, header.sequence)
            if found is not None and damaged.shape.layout == "layout":
                assert found[1] == good[found[0].block_hash][1]
        damaged.close()


def test_a_seal_binds_layout_hash_and_payload():
    seal = seal_of("layout", b"hash", b"payload")
    others = {
        seal_of("layout2", b"hash", b"payload"),
        seal_of("layout", b"hash2", b"payload"),
        seal_of("layout", b"hash", b"payload2"),
        seal_of("", b"layout\0hash", b"payload"),
    }
    assert seal not in others
    assert len(others) == 4


def test_choices_of_a_request_are_streams_of_their_own():
    assert len({stream_of("a", 0), stream_of("a", 1), stream_of("b", 0)}) == 3


def test_no_room_is_an_error_with_the_size(path):
    with pytest.raises(SlabInvalid, match="MiB"):
        Slab.create(path, SlabShape("layout", 1 << 30, 1 << 20), generation=1)
    with pytest.raises(SlabInvalid, match="give more memory"):
        SlabShape.of_memory("layout", 1 << 20, 1 << 20)
    assert list(path.parent.iterdir()) == []
