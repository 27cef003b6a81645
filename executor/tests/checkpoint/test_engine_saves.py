"""What a real engine saves: every filled block once, no more than step and slab may take, for whom it may."""

from typing import Any

import numpy as np
import pytest

from superinfer_proto.slab import Counter, seal_of, stream_of

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

BLOCK_TOKENS = 32
GOLD, SILVER, BRONZE = {"slo_rank": 0}, {"slo_rank": 1}, {"slo_rank": 2}


def blocks_of(engine: Any, name: str) -> list[int]:
    """Numbers of the whole blocks that are saved for a request."""
    found = [header for _, header in engine.slab.scan() if header.stream == stream_of(name, 0)]
    return sorted(header.ordinal for header in found if not header.tail_tokens)


def tails_of(engine: Any, name: str) -> list[tuple[int, int]]:
    """Numbers of the blocks that are saved in part, and how many tokens of each."""
    found = [header for _, header in engine.slab.scan() if header.stream == stream_of(name, 0)]
    return [(header.ordinal, header.tail_tokens) for header in found if header.tail_tokens]


def test_every_block_is_saved_in_the_step_that_fills_it(engine: Any, prompt_of: Any) -> None:
    engine.submit("r", prompt_of(100), max_tokens=60)
    engine.step()
    assert blocks_of(engine, "r") == [0, 1, 2], "of the prompt"
    for _ in range(27):
        engine.step()
    assert blocks_of(engine, "r") == [0, 1, 2]
    engine.step()
    assert blocks_of(engine, "r") == [0, 1, 2, 3], "128 tokens computed"
    for slot, header in engine.slab.scan():
        assert header.seal == seal_of(engine.slab.shape.layout, header.block_hash, engine.slab.payload(slot))


def test_half_a_block_is_saved_once_and_goes_when_the_block_is_full(engine: Any, prompt_of: Any) -> None:
    before = engine.counted(Counter.SAVED_BLOCKS)
    engine.submit("r", prompt_of(100), max_tokens=60)
    for _ in range(12):
        engine.step()
    assert tails_of(engine, "r") == []
    for _ in range(15):
        engine.step()
        assert tails_of(engine, "r") == [(3, 16)]
    engine.step()
    engine.step()
    assert blocks_of(engine, "r") == [0, 1, 2, 3]
    engine.connector._scheduling._table.erase_expired(1.0)
    assert tails_of(engine, "r") == []
    assert engine.counted(Counter.SAVED_BLOCKS) == before + 5


def test_what_a_block_held_before_does_not_leave_with_its_half(engine: Any, prompt_of: Any) -> None:
    """Requests before it, of whomever, have filled the cache; its half blocks have its own tokens only."""
    for number in range(4):
        engine.alone(f"before{number}", prompt_of(1200, number), salt="others", max_tokens=20)
    engine.forget_cache()
    engine.submit("r", prompt_of(100), max_tokens=60)
    seen = set()
    while engine.llm.llm_engine.has_unfinished_requests():
        engine.step()
        for slot, header in engine.slab.scan():
            if header.stream == stream_of("r", 0) and header.tail_tokens:
                seen.add(header.ordinal)
                numbers = np.frombuffer(engine.slab.payload(slot), dtype=np.float32)
                share = np.count_nonzero(numbers) / len(numbers)
                assert 0.9 < share * BLOCK_TOKENS / header.tail_tokens <= 1
    assert seen == {3, 4}


def test_a_block_that_is_there_is_not_saved_again(engine: Any, prompt_of: Any) -> None:
    engine.alone("first", prompt_of(96), max_tokens=1)
    before = engine.counted(Counter.SAVED_BLOCKS)
    engine.alone("second", prompt_of(130), max_tokens=1)
    assert engine.counted(Counter.SAVED_BLOCKS) == before + 1
    entries, _ = engine.slab.entries(0)
    referred = [e.ordinal for e in entries if e.stream == stream_of("second", 0)]
    assert referred == [0, 1, 2, 3]


def test_what_a_step_may_not_save_goes_with_the_next(tight_engine: Any, prompt_of: Any) -> None:
    """1 MiB a step holds ten blocks of 98,304 bytes; the prompt has fifteen."""
    before = tight_engine.counted(Counter.DEFERRED_BLOCKS)
    tight_engine.submit("r", prompt_of(490), max_tokens=30, **GOLD)
    tight_engine.step()
    assert blocks_of(tight_engine, "r") == list(range(10))
    assert tight_engine.counted(Counter.DEFERRED_BLOCKS) == before + 5
    tight_engine.step()
    assert blocks_of(tight_engine, "r") == list(range(15))


def test_a_full_slab_makes_room_only_for_the_more_important(tight_engine: Any, prompt_of: Any) -> None:
    slots = tight_engine.slab.shape.slots
    assert slots < 24
    tight_engine.submit("bronze", prompt_of(800), max_tokens=60, **BRONZE)
    for _ in range(6):
        tight_engine.step()
    assert blocks_of(tight_engine, "bronze") == list(range(slots))
    refused = tight_engine.counted(Counter.NO_ROOM_BLOCKS)
    tight_engine.submit("other", prompt_of(64, 1), max_tokens=60, **BRONZE)
    tight_engine.step()
    assert blocks_of(tight_engine, "other") == []
    assert tight_engine.counted(Counter.NO_ROOM_BLOCKS) > refused
    tight_engine.submit("gold", prompt_of(128, 2), max_tokens=60, **GOLD)
    tight_engine.step()
    tight_engine.step()
    assert blocks_of(tight_engine, "gold") == [0, 1, 2, 3]
    assert blocks_of(tight_engine, "bronze") == list(range(slots - 4)), "from its end"


@pytest.mark.parametrize(
    ("promise", "saved"),
    [
        pytest.param(GOLD, True, id="gold"),
        pytest.param(SILVER, False, id="a tier that is not covered"),
        pytest.param({}, False, id="best effort"),
    ],
)
def test_only_covered_tiers_are_saved(
    tight_engine: Any, prompt_of: Any, promise: dict[str, Any], saved: bool
) -> None:
    tight_engine.submit("r", prompt_of(70), max_tokens=4, **promise)
    tight_engine.step()
    assert bool(blocks_of(tight_engine, "r")) is saved


def test_a_request_that_ends_leaves_nothing(tight_engine: Any, prompt_of: Any) -> None:
    tight_engine.alone("r", prompt_of(70), max_tokens=4, **GOLD)
    tight_engine.connector._scheduling._table.erase_expired(float("inf"))
    assert tight_engine.saved() == []
    for slot in range(tight_engine.slab.shape.slots):
        payload = tight_engine.slab.payload(slot)
        assert bytes(payload) == bytes(len(payload)), "not even where nobody looks"


def test_a_request_that_is_cut_off_keeps_its_blocks_for_a_while(tight_engine: Any, prompt_of: Any) -> None:
    import time

    tight_engine.submit("r", prompt_of(70), max_tokens=40, **GOLD)
    tight_engine.step()
    tight_engine.llm.llm_engine.abort_request(["r"])
    tight_engine.run()
    table, now_s = tight_engine.connector._scheduling._table, time.monotonic()
    table.erase_expired(now_s + 20)
    assert blocks_of(tight_engine, "r") == [0, 1]
    table.erase_expired(now_s + 40)
    assert tight_engine.saved() == []
