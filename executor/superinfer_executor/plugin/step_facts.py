"""What each engine step did and how long it took, on its way from vLLM's core process to ours.

One msgpack datagram per step on a Unix socket named by SUPERINFER_STEP_FACTS_SOCKET. Promise: sending never
blocks and never raises; what the reader is too slow or too absent for is dropped and counted, and the count
travels with the next one. The channel is ours because vLLM's metric fields change with its versions.
Imports nothing of vLLM.
"""

import os
import socket
import time
from pathlib import Path
from typing import Final

import msgspec

SOCKET_ENV: Final = "SUPERINFER_STEP_FACTS_SOCKET"
MAX_LISTED: Final = 256
"""Preemptions and prefills named in one message; a datagram stays well below the socket's buffer."""
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
        step_ms: from the step's scheduling (or the end of the one before, where steps overlap) to its output.
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
        dropped: messages lost so far because nobody took them.
        invalid_promises: requests so far whose slo keys could not be read and were served as best effort.
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


_decoder = msgspec.msgpack.Decoder(StepFactsMessage)


def decode_step_facts(datagram: bytes) -> StepFactsMessage:
    """The message of one datagram; raises msgspec.DecodeError (ValidationError is one) for anything else."""
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
        """Hand over one message; False when it was dropped."""
        if self._path is None:
            return False
        connected = self._socket or self._connect()
        if connected is None:
            self.dropped += 1
            return False
        try:
            connected.send(self._encoder.encode(message))
        except BlockingIOError:
            self.dropped += 1
            return False
        except OSError:  # the reader went away; a new one may come to the same place
            self.close()
            self.dropped += 1
            return False
        return True

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
