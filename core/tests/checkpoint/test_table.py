"""Slots: given once, kept while needed, given up in the right order; streams without gaps."""

import random

import pytest

from superinfer_core.checkpoint.streams import StreamBook
from superinfer_core.checkpoint.table import BlockTable, Need


def filled(table, stream, blocks, rank=0):
    places = [table.need(each, stream, rank) for each in blocks]
    table.written(blocks)
    return places


def test_a_block_is_stored_once_and_stays_while_one_stream_needs_it():
    table = BlockTable(2)
    assert [p.need for p in filled(table, "a", [b"1"])] == [Need.GIVEN]
    assert [p.need for p in filled(table, "b", [b"1"])] == [Need.THERE]
    table.release("a", 0.0)
    assert table.expired(10.0) == []
    table.release("b", 5.0)
    assert table.expired(4.0) == []
    assert table.next_expiry() == 5.0
    assert table.expired(5.0) == [0]
    assert table.find(b"1") is None


def test_what_nobody_needs_makes_room_first_and_the_caller_is_told_to_clear_it():
    table = BlockTable(2)
    filled(table, "old", [b"1"])
    filled(table, "running", [b"2"])
    table.release("old", 100.0)
    (place,) = filled(table, "new", [b"3"])
    assert (place.need, place.slot, place.evicted) == (Need.GIVEN, 0, True)
    assert table.find(b"2") is not None


@pytest.mark.parametrize(("rank", "need"), [(0, Need.GIVEN), (1, Need.NO_ROOM), (2, Need.NO_ROOM)])
def test_only_the_more_important_takes_from_a_running_stream_and_from_its_end(rank, need):
    table = BlockTable(3)
    filled(table, "bronze", [b"1", b"2", b"3"], rank=1)
    assert table.need(b"4", "new", rank).need is need
    held = [table.find(each) is not None for each in (b"1", b"2", b"3")]
    assert held == [True, True, need is Need.NO_ROOM]


def test_a_slot_that_is_being_filled_is_not_taken():
    table = BlockTable(1)
    table.need(b"1", "a", 5)
    assert table.find(b"1") is None
    assert table.need(b"2", "gold", 0).need is Need.NO_ROOM
    table.release("a", 0.0)
    assert table.expired(1.0) == []
    table.written([b"1"])
    assert table.expired(1.0) == [0]


def test_a_dropped_block_is_gone_for_all():
    table = BlockTable(2)
    filled(table, "a", [b"1"])
    filled(table, "b", [b"1", b"2"])
    assert table.drop(b"1") == 0
    assert table.drop(b"1") is None
    assert [p.need for p in filled(table, "b", [b"1"])] == [Need.GIVEN]
    table.release("a", 0.0)
    assert table.expired(1.0) == []


def test_adopted_blocks_are_nobodys():
    table = BlockTable(2)
    assert table.adopt(1, b"1", 10.0)
    assert not table.adopt(0, b"1", 10.0)
    assert table.find(b"1") == 1
    assert table.expired(10.0) == [1]


def test_no_slot_is_ever_given_to_two_blocks():
    chance = random.Random(3)
    table, slots = BlockTable(8), 8
    for moment in range(3_000):
        name, stream = bytes([chance.randrange(20)]), chance.randrange(6)
        match chance.randrange(5):
            case 0:
                table.release(stream, moment + chance.randrange(20))
            case 1:
                table.expired(moment)
            case 2:
                table.drop(name)
            case _:
                place = table.need(name, stream, chance.randrange(3))
                if place.need is Need.GIVEN and chance.random() < 0.9:
                    table.written([name])
        places = [table.find(bytes([n])) for n in range(20)]
        held = [slot for slot in places if slot is not None]
        assert len(held) == len(set(held)) <= slots
        assert len(table) <= slots


def test_a_stream_is_of_use_up_to_its_first_gap():
    book = StreamBook()
    for ordinal in (0, 1, 3):
        book.put(7, ordinal, bytes([ordinal]))
    assert book.contiguous(7, lambda _: True) == [b"\0", b"\1"]
    assert book.contiguous(7, lambda block: block != b"\0") == []
    assert book.contiguous(7, lambda _: True, 3) == [b"\3"]
    assert book.end(7)
    assert not book.end(7)
    assert book.contiguous(7, lambda _: True) == []


def test_a_stream_whose_first_block_is_gone_is_forgotten():
    book = StreamBook()
    for stream, ordinals in ((1, (0, 1)), (2, (0, 1)), (3, (1,))):
        for ordinal in ordinals:
            book.put(stream, ordinal, bytes([stream, ordinal]))
    book.prune(lambda block: block != bytes([2, 0]))
    assert list(book) == [1, 3], "of the third more may come"


def test_streams_are_bounded():
    book = StreamBook(most_streams=3)
    for stream in range(5):
        book.put(stream, 0, b"x")
    assert list(book) == [2, 3, 4]


def test_what_one_stream_unties_stays_while_another_needs_it():
    table = BlockTable(2)
    filled(table, "a", [b"1", b"2"])
    filled(table, "b", [b"1"])
    table.untie(b"1", "a", 0.0)
    assert table.expired(10.0) == []
    table.untie(b"1", "b", 5.0)
    table.untie(b"1", "b", 0.0)
    assert table.expired(4.0) == []
    assert table.expired(5.0) == [0]
    table.release("a", 0.0)
    assert table.expired(10.0) == [1]


def test_a_tail_follows_whole_blocks_until_another_takes_its_place():
    book = StreamBook()

    def held(block_hash):
        return block_hash != b"gone"

    assert book.put(7, 0, b"0") is None
    assert book.put(7, 1, b"half", tail=True) is None
    assert book.held(7, held) == [b"0", b"half"]
    assert book.contiguous(7, held) == [b"0"]
    assert book.held(7, held, 2) == []
    assert (book.block(7, 0), book.block(7, 1), book.tail(7, 1), book.tail(7, 0)) == (
        b"0",
        None,
        b"half",
        None,
    )
    assert book.put(7, 1, b"half", tail=True) is None, "said twice"
    assert book.put(7, 1, b"more", tail=True) == b"half"
    assert book.put(7, 1, b"1") == b"more"
    assert book.held(7, held) == [b"0", b"1"]
    book.put(7, 2, b"gone", tail=True)
    assert book.held(7, held) == [b"0", b"1"]
    assert book.end(7)
    assert book.held(7, held) == []


def test_what_is_being_read_makes_room_for_nobody():
    table = BlockTable(2)
    filled(table, "loads", [b"1", b"2"], rank=2)
    table.pin("loads", [b"1", b"2"])
    assert table.need(b"3", "gold", 0).need is Need.NO_ROOM
    table.release("loads", 0.0)
    assert table.need(b"3", "gold", 0).need is Need.NO_ROOM, "nor when its request is cut off"
    table.unpin("loads")
    assert table.need(b"3", "gold", 0).need is Need.GIVEN
