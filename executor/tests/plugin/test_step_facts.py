"""Step facts between two processes: nothing blocks, little is lost, and what is lost is counted."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_executor.plugin.step_facts import (
    MAX_BACKLOG_STEPS,
    MAX_DATAGRAM_BYTES,
    PreemptionFact,
    ProgressFact,
    StepFactsMessage,
    StepFactsSender,
    bind_step_facts_socket,
    decode_step_facts,
)


def fact(step: int) -> StepFactsMessage:
    return StepFactsMessage(step=step, step_ms=5.0, prefill_tokens=100, decode_seqs=3)


def received(reader: object) -> list[StepFactsMessage]:
    found: list[StepFactsMessage] = []
    while True:
        try:
            found += decode_step_facts(reader.recv(MAX_DATAGRAM_BYTES))  # type: ignore[attr-defined]
        except BlockingIOError:
            return found


def test_a_reader_that_keeps_up_gets_every_step_at_once(tmp_path: Path) -> None:
    path = tmp_path / "facts"
    with bind_step_facts_socket(path) as reader:
        sender = StepFactsSender(str(path))
        for step in range(1, 50):
            assert sender.send(fact(step))
            assert received(reader) == [fact(step)]
        sender.close()


def test_a_reader_that_was_away_for_many_steps_loses_none(tmp_path: Path) -> None:
    """Linux queues ten datagrams; two hundred steps wait at the sender."""
    path = tmp_path / "facts"
    with bind_step_facts_socket(path) as reader:
        sender = StepFactsSender(str(path))
        for step in range(200):
            sender.send(fact(step))
        found = received(reader)
        while not sender.flush():
            found += received(reader)
        found += received(reader)
        assert [each.step for each in found] == list(range(200))
        assert sender.dropped == 0
        sender.close()


def test_without_a_reader_steps_are_dropped_oldest_first_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "facts"
    sender = StepFactsSender(str(path))
    for step in range(MAX_BACKLOG_STEPS + 100):
        assert not sender.send(fact(step))
    assert sender.dropped == 100
    sender.close()


def test_a_reader_that_comes_back_to_the_same_place_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "facts"
    sender = StepFactsSender(str(path))
    with bind_step_facts_socket(path) as reader:
        assert sender.send(fact(1))
        assert [each.step for each in received(reader)] == [1]
    assert not sender.send(fact(2))
    with bind_step_facts_socket(path) as reader:
        sender._retry_at_s = 0.0  # else it waits half a second before it looks again
        assert sender.send(fact(3))
        assert [each.step for each in received(reader)] == [2, 3]
    sender.close()


def test_nobody_asked_for_facts() -> None:
    sender = StepFactsSender(None)
    assert not sender.enabled
    assert not sender.send(fact(1))
    assert sender.dropped == 0


def test_everything_a_step_says_arrives(tmp_path: Path) -> None:
    path = tmp_path / "facts"
    said = StepFactsMessage(
        step=7,
        step_ms=12.5,
        prefill_tokens=10,
        prefill_context_tokens2=50.0,
        decode_seqs=2,
        decode_context_tokens=300,
        running=3,
        waiting=4,
        kv_usage=0.25,
        plan_ms=0.4,
        prefill_budget_tokens=64,
        preemptions=(PreemptionFact("victim", "urgent", 94),),
        progress=(ProgressFact("long", 512),),
        dropped=1,
        invalid_promises=2,
        failed_plans=3,
    )
    with bind_step_facts_socket(path) as reader:
        sender = StepFactsSender(str(path))
        assert sender.send(said)
        assert received(reader) == [said]
        sender.close()


def test_only_the_owner_may_write_facts(tmp_path: Path) -> None:
    path = tmp_path / "facts"
    with bind_step_facts_socket(path):
        assert path.stat().st_mode & 0o077 == 0


@given(st.binary(max_size=200))
def test_any_bytes_are_facts_or_a_decode_error(datagram: bytes) -> None:
    try:
        steps = decode_step_facts(datagram)
    except msgspec.DecodeError:
        return
    assert all(isinstance(step, StepFactsMessage) for step in steps)


@pytest.mark.parametrize("steps", [1, 15, 16, 40])
def test_steps_that_travel_together_stay_in_order(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "facts"
    sender = StepFactsSender(str(path))
    for step in range(steps - 1):
        sender.send(fact(step))
    with bind_step_facts_socket(path) as reader:
        sender._retry_at_s = 0.0
        assert sender.send(fact(steps - 1))
        assert [each.step for each in received(reader)] == list(range(steps))
    sender.close()
