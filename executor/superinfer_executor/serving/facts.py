"""Facts of engine steps, from the scheduler plug-in in EngineCore's process.

A datagram socket of our own (plugin/step_facts.py). Facts that nobody takes are dropped, oldest first; a
datagram that cannot be read is counted and ignored. Event loop only.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from superinfer_executor.plugin.step_facts import (
    MAX_DATAGRAM_BYTES,
    StepFactsMessage,
    bind_step_facts_socket,
    decode_step_facts,
)
from superinfer_executor.serving.engine_ids import request_id_of
from superinfer_proto.v1 import work_pb2

KEPT_FACTS: Final = 1024
PREFILL_ONLY_S: Final = 0.010
"""Facts whose step has no output leave alone after this long."""


class FactsSocket:
    """Receives facts; `take` gives them in order, with our request ids instead of the engine's."""

    def __init__(
        self,
        path: Path,
        *,
        preempted: Callable[[str], None],
        flush: Callable[[], None],
    ) -> None:
        self.unreadable = 0
        self._preempted = preempted
        self._flush = flush
        self._facts: deque[work_pb2.StepFacts] = deque(maxlen=KEPT_FACTS)
        self._path = path
        self._socket = bind_step_facts_socket(path)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flush_is_due = False

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start reading."""
        self._loop = loop
        loop.add_reader(self._socket.fileno(), self._read)

    def close(self) -> None:
        """Stop reading and remove the socket."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def take(self) -> list[work_pb2.StepFacts]:
        """Facts since the last call, oldest first."""
        self._drain()
        facts = list(self._facts)
        self._facts.clear()
        return facts

    def _read(self) -> None:
        self._drain()
        if self._facts and not self._flush_is_due and self._loop is not None:
            self._flush_is_due = True
            self._loop.call_later(PREFILL_ONLY_S, self._flush_late)

    def _flush_late(self) -> None:
        self._flush_is_due = False
        if self._facts:
            self._flush()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                datagram = self._socket.recv(MAX_DATAGRAM_BYTES)
                try:
                    steps = decode_step_facts(datagram)
                except msgspec.DecodeError:
                    self.unreadable += 1
                    continue
                self._facts.extend(self._translate(step) for step in steps)

    def _translate(self, message: StepFactsMessage) -> work_pb2.StepFacts:
        facts = work_pb2.StepFacts(
            step_ms=message.step_ms,
            prefill_tokens=message.prefill_tokens,
            prefill_context_tokens2=message.prefill_context_tokens2,
            decode_seqs=message.decode_seqs,
            decode_context_tokens=message.decode_context_tokens,
            running=message.running,
            waiting=message.waiting,
            kv_usage=message.kv_usage,
        )
        for preemption in message.preemptions:
            self._preempted(preemption.request_id)
            facts.preemptions.add(
                request_id=request_id_of(preemption.request_id),
                for_request_id=request_id_of(preemption.for_request_id),
                computed_tokens=preemption.computed_tokens,
            )
        for progress in message.progress:
            request_id = request_id_of(progress.request_id)
            facts.progress.add(request_id=request_id, computed_tokens=progress.computed_tokens)
        return facts
