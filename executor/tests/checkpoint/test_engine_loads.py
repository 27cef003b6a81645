"""What a real engine loads: the right blocks, or none; a damaged one costs time and no token."""

from typing import Any

import pytest

from superinfer_proto.slab import Counter, Slab, stream_of

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

SAMPLED = {"temperature": 0.8, "seed": 5, "presence_penalty": 0.5}


def loaded(engine: Any, before: int) -> int:
    return engine.counted(Counter.LOADED_BLOCKS) - before


def damage(engine: Any, name: str, ordinal: int) -> None:
    (slot,) = (
        slot for slot, h in engine.slab.scan() if h.stream == stream_of(name, 0) and h.ordinal == ordinal
    )
    engine.slab.payload(slot)[1000] ^= 0xFF


def test_blocks_come_from_the_slab_and_the_tokens_are_the_same(engine: Any, prompt_of: Any) -> None:
    whole = engine.alone("whole", prompt_of(400), max_tokens=60, **SAMPLED)
    engine.forget_cache()
    before = engine.counted(Counter.LOADED_BLOCKS)
    rest = engine.alone("cut", prompt_of(400), max_tokens=60, resume_token_ids=whole[:40], **SAMPLED)
    assert whole[:40] + rest == whole
    assert loaded(engine, before) == 13, "439 tokens computed before: 13 whole blocks"
    assert engine.computed["cut"] == [416]


@pytest.mark.parametrize(
    ("delivered", "computed"),
    [(40, 416), (50, 416 + 16), (58, 416 + 16), (59, 416 + 16)],
    ids=["before half a block", "just after", "near its end", "at the last token"],
)
def test_half_of_an_unfinished_block_comes_too(
    engine: Any, prompt_of: Any, delivered: int, computed: int
) -> None:
    """386 tokens of the prompt and 30 delivered ones are whole blocks."""
    whole = engine.alone("whole", prompt_of(386), max_tokens=60, **SAMPLED)
    engine.forget_cache()
    rest = engine.alone("cut", prompt_of(386), max_tokens=60, resume_token_ids=whole[:delivered], **SAMPLED)
    assert whole[:delivered] + rest == whole
    assert engine.computed["cut"] == [computed]


def test_a_tail_that_was_loaded_goes_when_its_block_is_full(engine: Any, prompt_of: Any) -> None:
    whole = engine.alone("whole", prompt_of(386), max_tokens=80, **SAMPLED)
    engine.forget_cache()
    engine.submit("cut", prompt_of(386), max_tokens=80, resume_token_ids=whole[:50], **SAMPLED)
    for _ in range(30):
        engine.step()
    engine.connector._scheduling._table.erase_expired(1.0)
    tails = [h.ordinal for _, h in engine.slab.scan() if h.tail_tokens and h.stream == stream_of("cut", 0)]
    assert tails in ([], [14]), "of the block that is being filled, none of the one before"
    engine.run()
    assert whole[:50] + engine.tokens["cut"] == whole


def test_at_least_one_token_is_left_to_compute(engine: Any, prompt_of: Any) -> None:
    whole = engine.alone("whole", prompt_of(128), max_tokens=4)
    engine.forget_cache()
    assert engine.alone("again", prompt_of(128), max_tokens=4) == whole
    assert engine.computed["again"] == [96]


@pytest.mark.parametrize("ordinal", [0, 5, 12], ids=["the first", "one in the middle", "the last"])
def test_a_damaged_block_is_computed_again_with_all_after_it(
    engine: Any, prompt_of: Any, ordinal: int
) -> None:
    prompt = prompt_of(400)
    whole = engine.alone("whole", prompt, max_tokens=60, **SAMPLED)
    engine.forget_cache()
    damage(engine, "whole", ordinal)
    failures = engine.counted(Counter.LOAD_FAILURES)
    rest = engine.alone("cut", prompt, max_tokens=60, resume_token_ids=whole[:40], **SAMPLED)
    assert whole[:40] + rest == whole
    assert engine.counted(Counter.LOAD_FAILURES) == failures + 1
    # What was computed from it in that step must not have been saved as good.
    engine.forget_cache()
    rest = engine.alone("cut again", prompt, max_tokens=60, resume_token_ids=whole[:40], **SAMPLED)
    assert whole[:40] + rest == whole
    assert engine.counted(Counter.LOAD_FAILURES) == failures + 1


def test_neighbours_of_a_damaged_block_are_right_too(engine: Any, prompt_of: Any) -> None:
    prompts = [prompt_of(300, 0), prompt_of(300, 0)[:200] + prompt_of(100, 9), prompt_of(150, 3)]
    expected = [engine.alone(f"alone{n}", each, max_tokens=30, **SAMPLED) for n, each in enumerate(prompts)]
    engine.forget_cache()
    damage(engine, "alone0", 3)
    for number, prompt in enumerate(prompts):
        engine.submit(f"r{number}", prompt, max_tokens=30, **SAMPLED)
    engine.run()
    assert [engine.tokens[f"r{number}"] for number in range(3)] == expected


def test_another_tenant_never_hits(engine: Any, prompt_of: Any) -> None:
    prompt = prompt_of(200)
    engine.alone("ours", prompt, salt="ours", max_tokens=4)
    engine.forget_cache()
    before = engine.counted(Counter.LOADED_BLOCKS)
    engine.alone("theirs", prompt, salt="theirs", max_tokens=4)
    engine.alone("nobody's", prompt, max_tokens=4)
    assert loaded(engine, before) == 0
    engine.forget_cache()
    engine.alone("ours again", prompt, salt="ours", max_tokens=4)
    assert loaded(engine, before) == 6


def test_a_slab_of_another_layout_is_never_read(engine: Any, prompt_of: Any) -> None:
    """The same blocks, hashes and seals under the name of another model."""
    from dataclasses import replace

    whole = engine.alone("whole", prompt_of(200), max_tokens=8)
    shape = replace(engine.slab.shape, layout="another model")
    foreign = Slab.create(engine.settings.store_slab, shape, generation=1)
    for slot, header in engine.slab.scan():
        foreign.payload(slot)[:] = engine.slab.payload(slot)
        foreign.publish(slot, header.block_hash, header.seal, header.stream, header.ordinal)
    engine.clear()
    before = engine.counted(Counter.LOADED_BLOCKS)
    assert engine.alone("again", prompt_of(200), max_tokens=8) == whole
    assert loaded(engine, before) == 0
    engine.settings.store_slab.unlink()


def test_blocks_a_sidecar_has_restored_are_loaded_and_saved_as_ones_own(engine: Any, prompt_of: Any) -> None:
    whole = engine.alone("whole", prompt_of(400), max_tokens=60, **SAMPLED)
    store = Slab.create(engine.settings.store_slab, engine.slab.shape, generation=1)
    for slot, header in engine.slab.scan():
        store.payload(slot)[:] = engine.slab.payload(slot)
        store.publish(slot, header.block_hash, header.seal, header.stream, header.ordinal)
    engine.clear()
    engine.connector._scheduling._on_hand.store.follow()
    before = engine.counted(Counter.LOADED_BLOCKS)
    rest = engine.alone("cut", prompt_of(400), max_tokens=60, resume_token_ids=whole[:40], **SAMPLED)
    assert whole[:40] + rest == whole
    assert loaded(engine, before) == 13
    ours = [h.ordinal for _, h in engine.slab.scan() if h.stream == stream_of("cut", 0)]
    assert sorted(ours) == list(range(14)), "taken over, and the last one computed"
    for slot, _ in list(store.scan()):
        store.erase(slot)  # the engine has it mapped, and other tests must not find it
    engine.settings.store_slab.unlink()


def test_a_displaced_request_comes_back_from_the_slab(engine: Any, prompt_of: Any) -> None:
    """The cache holds 40 blocks: whoever displaces the victim also takes its blocks."""
    bronze = {"slo_rank": 2, "slo_itl_ms": 60_000}
    scheduler = engine.scheduler
    alone = list(engine.alone("alone", prompt_of(600), max_tokens=60, **SAMPLED))
    engine.clear()
    engine.submit("victim", prompt_of(600), max_tokens=60, **SAMPLED, **bronze)
    while len(engine.tokens["victim"]) < 30:
        engine.step()
    before = engine.counted(Counter.LOADED_BLOCKS)
    victim = scheduler.requests["victim"]
    scheduler.running.remove(victim)
    scheduler._preempt_request(victim, 0.0)
    scheduler.waiting.clear()
    engine.submit("gold", prompt_of(1200, 3), max_tokens=4, slo_rank=0, slo_ttft_ms=60_000)
    engine.step()
    scheduler.waiting.append(victim)
    engine.run()
    assert engine.tokens["victim"] == alone
    assert len(engine.tokens["gold"]) == 4
    assert loaded(engine, before) >= 15, "600 prompt tokens and what it had said"
