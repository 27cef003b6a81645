"""What travels beside a request: its promise down to the scheduler, facts of steps up."""

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from superinfer_executor.plugin.request_slo import parse_promise
from superinfer_executor.plugin.step_facts import PreemptionFact, ProgressFact, StepFactsMessage
from superinfer_executor.serving.facts import FactsSocket
from superinfer_executor.serving.slo_args import slo_args, tier_rank
from superinfer_proto.v1 import slo_pb2, work_pb2

GOLD = slo_pb2.RequestSlo(
    contract="shop/chat",
    tier=slo_pb2.TIER_GOLD,
    priority=5,
    ttft_target_ms=300,
    itl_target_ms=40,
    elapsed_ms=12,
    since_first_token_ms=7,
    contract_holds=True,
    budget_left=0.25,
)


def test_the_scheduler_reads_the_promise_as_it_was_resolved() -> None:
    submit = work_pb2.Submit(slo=GOLD, expected_output_tokens=90)
    promise = parse_promise(slo_args(submit, received_ms=1000, now_ms=1003))
    assert promise.slo.contract == "shop/chat"
    assert (promise.slo.rank.tier_rank, promise.slo.rank.negated_priority) == (0, -5)
    assert (promise.slo.ttft_ms, promise.slo.itl_ms, promise.slo.e2e_ms) == (300, 40, None)
    assert (promise.slo.contract_holds, promise.slo.budget_left) == (True, 0.25)
    assert promise.elapsed_ms == 15, "what elapsed before and here"
    assert promise.since_first_token_ms == 10
    assert promise.expected_output_tokens == 90


def test_best_effort_has_no_targets_and_the_last_rank() -> None:
    slo = slo_pb2.RequestSlo(best_effort=True, tier=slo_pb2.TIER_GOLD, ttft_target_ms=1)
    promise = parse_promise(slo_args(work_pb2.Submit(slo=slo), 0, 0))
    assert promise.slo.best_effort
    assert promise.slo.ttft_ms is None
    assert promise.slo.rank.tier_rank == tier_rank(slo) == 9


@pytest.mark.parametrize("elapsed_ms", [-5.0, 1e12, 0.0])
def test_absurd_clocks_still_make_a_readable_promise(elapsed_ms: float) -> None:
    slo = slo_pb2.RequestSlo(elapsed_ms=elapsed_ms, since_first_token_ms=elapsed_ms)
    parse_promise(slo_args(work_pb2.Submit(slo=slo), 5, 0))


class Facts:
    def __init__(self, directory: Path) -> None:
        self.preempted: list[str] = []
        self.flushed = asyncio.Event()
        self.path = directory / "facts"
        self.socket = FactsSocket(
            self.path,
            preempted=self.preempted.append,
            flush=self.flushed.set,
        )
        self.socket.listen(asyncio.get_running_loop())

    def send(self, *messages: StepFactsMessage | bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for message in messages:
                raw = message if isinstance(message, bytes) else msgspec.msgpack.encode((message,))
                sender.sendto(raw, str(self.path))


async def test_facts_name_requests_as_the_sidecar_knows_them(tmp_path: Path) -> None:
    facts = Facts(tmp_path)
    facts.send(
        StepFactsMessage(
            step=1,
            step_ms=4.5,
            prefill_tokens=3,
            decode_seqs=2,
            preemptions=(PreemptionFact("r/1/0", "s/1/0", 40),),
            progress=(ProgressFact("with/slash/1/0", 8),),
        )
    )
    (fact,) = facts.socket.take()
    assert (fact.step_ms, fact.prefill_tokens, fact.decode_seqs) == (4.5, 3, 2)
    assert [(p.request_id, p.for_request_id, p.computed_tokens) for p in fact.preemptions] == [("r", "s", 40)]
    assert [(p.request_id, p.computed_tokens) for p in fact.progress] == [("with/slash", 8)]
    assert facts.preempted == ["r/1/0"]
    facts.socket.close()


async def test_facts_without_output_leave_soon_and_garbage_is_counted(tmp_path: Path) -> None:
    facts = Facts(tmp_path)
    facts.send(b"garbage", msgspec.msgpack.encode({"step": "x"}), StepFactsMessage(step=2, step_ms=1))
    await asyncio.wait_for(facts.flushed.wait(), 5)
    assert [fact.step_ms for fact in facts.socket.take()] == [1]
    assert facts.socket.unreadable == 2
    assert facts.socket.take() == []
    facts.socket.close()
    assert not facts.path.exists()
