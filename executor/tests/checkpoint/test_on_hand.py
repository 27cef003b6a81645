"""What is on hand for a request: its own engine's blocks, and those a sidecar has put beside them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from superinfer_executor.checkpoint.on_hand import OnHand, Reader
from superinfer_executor.checkpoint.store_index import StoreIndex
from superinfer_executor.checkpoint.table import SlotTable
from superinfer_proto.slab import Counter, Slab, SlabShape, seal_of

SHAPE = SlabShape("layout", 4000, 6)
NAMES = [bytes([65 + number]) * 32 for number in range(8)]
READER = Reader("r/2/0", stream=7, rank=1)


def payload_of(name: bytes) -> bytes:
    return name * (SHAPE.payload_bytes // 32)


def put(slab: Slab, slot: int, name: bytes, ordinal: int) -> None:
    slab.clear(slot)
    slab.payload(slot)[:] = payload_of(name)
    slab.publish(slot, name, seal_of("layout", name, payload_of(name)), 7, ordinal)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Slab]:
    """As a sidecar has it."""
    slab = Slab.adopt(tmp_path / "store.slab", SHAPE, generation=2)
    yield slab
    slab.close()


@pytest.fixture
def on_hand(tmp_path: Path, store: Slab) -> Iterator[OnHand]:
    """An engine that holds the first two blocks, left by the one before it."""
    own = Slab.adopt(tmp_path / "engine.slab", SHAPE, generation=1)
    for ordinal, name in enumerate(NAMES[:2]):
        put(own, ordinal, name, ordinal)
    index = StoreIndex(tmp_path / "store.slab", "layout")
    index.follow()
    yield OnHand(own, SlotTable(own, now_s=0.0, orphan_s=10.0), index)
    own.close()


def found(on_hand: OnHand, first: int = 0, end: int = 8, reader: Reader = READER) -> list[bytes]:
    held = on_hand.contiguous(reader, NAMES, first, end)
    for each in held:
        assert bytes(on_hand.slab.payload(each.slot)) == payload_of(each.block_hash)
        assert on_hand.slab.holds(each.slot, each.sequence)
    return [each.block_hash for each in held]


def test_own_blocks_and_then_the_sidecars(on_hand: OnHand, store: Slab) -> None:
    assert found(on_hand) == NAMES[:2]
    for slot, ordinal in enumerate((2, 3, 4)):
        put(store, slot, NAMES[ordinal], ordinal)
    assert found(on_hand) == NAMES[:5]
    assert found(on_hand, first=3, end=4) == NAMES[3:4]


def test_what_was_taken_over_stays_when_the_sidecar_erases_its_own(on_hand: OnHand, store: Slab) -> None:
    put(store, 0, NAMES[2], 2)
    assert found(on_hand) == NAMES[:3]
    store.erase(0)
    assert found(on_hand) == NAMES[:3]
    entries, _ = on_hand.slab.entries(0)
    assert entries[-1].ordinal == 2
    assert entries[-1].stream == 7, "its own sidecar hears of it, and copies it on"


def test_a_gap_ends_it(on_hand: OnHand, store: Slab) -> None:
    put(store, 0, NAMES[3], 3)
    assert found(on_hand) == NAMES[:2]


@pytest.mark.parametrize("where", ["own", "store"])
def test_a_damaged_block_is_not_on_hand_and_is_counted(on_hand: OnHand, store: Slab, where: str) -> None:
    put(store, 0, NAMES[2], 2)
    if where == "own":
        on_hand.slab.payload(1)[100] ^= 1
        assert found(on_hand) == NAMES[:1]
        assert found(on_hand) == NAMES[:1], "nor the next time"
    else:
        store.payload(0)[100] ^= 1
        assert found(on_hand) == NAMES[:2]
    assert on_hand.slab.counted(Counter.LOAD_FAILURES) >= 1


def test_a_damaged_own_block_is_taken_from_the_sidecar(on_hand: OnHand, store: Slab) -> None:
    on_hand.slab.payload(1)[100] ^= 1
    put(store, 0, NAMES[1], 1)
    assert found(on_hand) == NAMES[:2]


def test_held_blocks_stay_whatever_expires_and_whoever_wants_room(on_hand: OnHand, store: Slab) -> None:
    assert found(on_hand) == NAMES[:2]
    on_hand.table.erase_expired(1e9)
    other = Reader("other", stream=8, rank=1)
    names = [bytes([97 + number]) * 32 for number in range(8)]
    for slot, name in enumerate(names[:6]):
        put(store, slot, name, slot)
    assert len(on_hand.contiguous(other, names, 0, 6)) == 4, "the room that was left"
    assert found(on_hand) == NAMES[:2]
    on_hand.released(READER.request_id)
    on_hand.table.release(READER.request_id, 0.0)
    on_hand.table.erase_expired(1.0)
    assert found(on_hand) == []
    assert len(on_hand.contiguous(other, names, 0, 6)) == 6


def test_no_slot_is_written_while_its_block_is_announced_as_right(on_hand: OnHand, store: Slab) -> None:
    """The next block overwrites the sidecar's slot between finding and copying."""
    put(store, 0, NAMES[2], 2)
    on_hand.store.refresh()
    put(store, 0, NAMES[5], 5)
    assert found(on_hand) == NAMES[:2]
    assert on_hand.slab.counted(Counter.LOAD_FAILURES) == 0, "nothing was damaged"
