"""What each engine step did and how long it took, on its way from vLLM's core process to ours.

Msgpack datagrams on a Unix socket named by SUPERINFER_STEP_FACTS_SOCKET. Promise: sending never blocks and
never raises. Linux queues ten datagrams on such a socket, so steps the reader has no room for wait here and
travel together with a later one; what still finds no room is dropped, oldest first, and counted. The channel
is ours because vLLM's metric fields change with its versions. Imports nothing of vLLM.
"""

import os
import socket
import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

SOCKET_ENV: Final = "SUPERINFER_STEP_FACTS_SOCKET"
MAX_LISTED: Final = 64
"""Preemptions and prefills named of one step; a datagram stays well below the socket's buffer."""
MAX_BACKLOG_STEPS: Final = 512
MAX_STEPS_PER_DATAGRAM: Final = 15
_ARRAY_OF: Final = tuple(bytes([0x90 | length]) for length in range(MAX_STEPS_PER_DATAGRAM + 1))
"""Msgpack's headers of short arrays: messages are encoded once, and only then put together."""
RECONNECT_S: Final = 0.5
RECEIVE_BUFFER_BYTES: Final = 4 << 20
MAX_DATAGRAM_BYTES: Final = 1 << 20


class PreemptionFact(msgspec.Struct, frozen=True):
    """`request_id` left the batch; for whom ("" when the KV cache was full), and what it had computed."""

    request_id: str
    for_request_id: str
    computed_tokens: int


class ProgressFact(msgspec.Struct, frozen=True):
    """A prefill under way."""

    request_id: str
    computed_tokens: int


class StepFactsMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step. Request ids are the engine's own.

    Attributes:
        step: number of the step, from 1 at the start of the engine.
        step_ms: from the end of the step before (its own scheduling after an idle time) to its output.
        prefill_tokens: prompt (and recomputed) tokens computed.
        prefill_context_tokens2: sum over prefill chunks of chunk * (context before + chunk / 2).
        decode_seqs: sequences that decoded.
        decode_context_tokens: context those sequences read.
        running: in the batch after the step.
        waiting: inside the engine, not in the batch.
        kv_usage: 0..1.
        plan_ms: of step_ms, spent deciding.
        prefill_budget_tokens: prefill the plan allowed; None when there was nothing to plan.
        preemptions: who left the batch.
        progress: prefills under way.
        dropped: steps lost so far because nobody took them.
        invalid_promises: requests so far whose slo keys could not be read and were served as best effort.
        failed_plans: steps so far that went ahead without a plan because of a defect.
    """

    step: int
    step_ms: float
    prefill_tokens: int = 0
    prefill_context_tokens2: float = 0.0
    decode_seqs: int = 0
    decode_context_tokens: int = 0
    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    plan_ms: float = 0.0
    prefill_budget_tokens: int | None = None
    preemptions: tuple[PreemptionFact, ...] = ()
    progress: tuple[ProgressFact, ...] = ()
    dropped: int = 0
    invalid_promises: int = 0
    failed_plans: int = 0


_decoder = msgspec.msgpack.Decoder(tuple[StepFactsMessage, ...])


def decode_step_facts(datagram: bytes) -> tuple[StepFactsMessage, ...]:
    """The steps of one datagram, oldest first; raises msgspec.DecodeError for anything else."""
    return _decoder.decode(datagram)


def bind_step_facts_socket(path: Path) -> socket.socket:
    """The reader's end: a non-blocking datagram socket at `path`, ours alone (mode 0600)."""
    path.unlink(missing_ok=True)
    reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    reader.bind(str(path))
    path.chmod(0o600)
    return reader


class StepFactsSender:
    """The engine's end. One owner thread. Without a socket path it does nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._retry_at_s = 0.0
        self._encoder = msgspec.msgpack.Encoder()
        self._backlog: deque[bytes] = deque()
        self.dropped = 0

    @classmethod
    def from_environment(cls) -> "StepFactsSender":
        """The sender of this process."""
        return cls(os.environ.get(SOCKET_ENV) or None)

    @property
    def enabled(self) -> bool:
        """Whether anybody asked for facts."""
        return self._path is not None

    def send(self, message: StepFactsMessage) -> bool:
        """Hand over one step and those that still wait; False when the reader had no room or is not there."""
        if self._path is None:
            return False
        self._backlog.append(self._encoder.encode(message))
        if len(self._backlog) > MAX_BACKLOG_STEPS:
            self._backlog.popleft()
            self.dropped += 1
        return self.flush()

    def flush(self) -> bool:
        """Try to hand over the steps that wait; True when none is left."""
        connected = self._socket or self._connect()
        while connected is not None and self._backlog:
            steps = list(islice(self._backlog, MAX_STEPS_PER_DATAGRAM))
            try:
                connected.send(_ARRAY_OF[len(steps)] + b"".join(steps))
            except BlockingIOError:
                return False
            except OSError:  # the reader went away; a new one may come to the same place
                self.close()
                return False
            for _ in steps:
                self._backlog.popleft()
        return not self._backlog

    def close(self) -> None:
        """Let go of the socket; a later send connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> socket.socket | None:
        now_s = time.monotonic()
        if now_s < self._retry_at_s or self._path is None:
            return None
        self._retry_at_s = now_s + RECONNECT_S
        candidate = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            candidate.connect(self._path)
        except OSError:
            candidate.close()
            return None
        self._socket = candidate
        return candidate
