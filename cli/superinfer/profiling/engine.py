"""Talks to one idle engine directly, as its sidecar would, to measure it.

Concurrency: one asyncio task; one batch of requests at a time, so that what is measured is known.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from superinfer_core.prediction.step_model import StepFacts
from superinfer_proto.limits import MESSAGE_OPTIONS
from superinfer_proto.v1 import engine_pb2, engine_pb2_grpc, slo_pb2, work_pb2

PATH = "/v1/completions"
QUIET_S = 0.15
"""An idle engine that said nothing for so long has said everything."""


class EngineTroubleError(Exception):
    """The engine cannot be measured; says why."""


@dataclass(frozen=True, slots=True)
class Work:
    """One request to measure with: random prompt tokens, and how many to generate."""

    prompt_token_ids: tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What one batch of work showed.

    Attributes:
        facts: of every step that reported them, in order.
        ttft_ms, end_ms: per request, from the moment of sending.
    """

    facts: tuple[StepFacts, ...]
    ttft_ms: tuple[float, ...]
    end_ms: tuple[float, ...]


class MeasuredEngine:
    """One connection to one engine."""

    def __init__(self, socket: Path, *, timeout_s: float = 300.0) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=MESSAGE_OPTIONS)
        self._call: Any = None
        self._inbox: asyncio.Queue[engine_pb2.FromEngine | EngineTroubleError] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None
        self._timeout_s = timeout_s
        self._sent = 0
        self.info = engine_pb2.EngineInfo()

    async def __aenter__(self) -> Self:
        """Connect and learn what the engine is."""
        stub = engine_pb2_grpc.EngineStub(self._channel)  # type: ignore[no-untyped-call]
        self._call = stub.Run(wait_for_ready=True)
        self._reader = asyncio.create_task(self._receive())
        first = await self._read()
        self.info = first.info
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        if self._call is not None:
            self._call.cancel()
        if self._reader is not None:
            await asyncio.wait({self._reader})
        await self._channel.close()

    async def run(self, work: Sequence[Work]) -> Measured:
        """Do all of `work` at once and report what every step did."""
        sent_at = time.monotonic()
        ids = [self._next_id() for _ in work]
        submits = [self._submit(request_id, item) for request_id, item in zip(ids, work, strict=True)]
        await self._call.write(engine_pb2.ToEngine(submits=submits))
        first: dict[str, float] = {}
        end: dict[str, float] = {}
        facts: list[StepFacts] = []
        while len(end) < len(ids):
            message = await self._read()
            now_ms = (time.monotonic() - sent_at) * 1000
            if message.frame.HasField("facts"):
                facts.append(_step_facts(message.frame.facts))
            for output in message.frame.outputs:
                if output.HasField("error"):
                    raise EngineTroubleError(f"the engine refused a request: {output.error.message}")
                if output.token_ids:
                    first.setdefault(output.request_id, now_ms)
                if output.final:
                    end[output.request_id] = now_ms
        # Facts come on a way of their own and may trail the tokens they are about.
        while (late := await self._read_within(QUIET_S)) is not None:
            if late.frame.HasField("facts"):
                facts.append(_step_facts(late.frame.facts))
        return Measured(
            tuple(facts),
            tuple(first.get(request_id, end[request_id]) for request_id in ids),
            tuple(end[request_id] for request_id in ids),
        )

    def _next_id(self) -> str:
        self._sent += 1
        return f"profile-{self._sent}"

    def _submit(self, request_id: str, work: Work) -> work_pb2.Submit:
        body = {
            "model": self.info.model,
            "prompt": list(work.prompt_token_ids),
            "max_tokens": work.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        return work_pb2.Submit(
            request_id=request_id,
            attempt=1,
            path=PATH,
            body=json.dumps(body).encode(),
            slo=slo_pb2.RequestSlo(quantile=0.99, contract_holds=True, budget_left=1.0),
            admission=work_pb2.ADMISSION_MODE_SKIP,
            created_s=int(time.time()),
            prompt_token_ids=work.prompt_token_ids,
        )

    async def _receive(self) -> None:
        """Reads in a task of its own: a read that is given up would end the whole connection."""
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self._inbox.put_nowait(message)
            self._inbox.put_nowait(EngineTroubleError("the engine ended the connection"))
        except grpc.aio.AioRpcError as error:
            self._inbox.put_nowait(EngineTroubleError(f"the engine hung up: {error.details()}"))
        except asyncio.CancelledError:
            return  # we hung up

    async def _read(self) -> engine_pb2.FromEngine:
        message = await self._read_within(self._timeout_s)
        if message is None:
            raise EngineTroubleError(f"the engine said nothing for {self._timeout_s:.0f} s")
        return message

    async def _read_within(self, seconds: float) -> engine_pb2.FromEngine | None:
        try:
            async with asyncio.timeout(seconds):
                message = await self._inbox.get()
        except TimeoutError:
            return None
        if isinstance(message, EngineTroubleError):
            raise message
        return message


def _step_facts(facts: work_pb2.StepFacts) -> StepFacts:
    return StepFacts(
        step_ms=facts.step_ms,
        prefill_tokens=facts.prefill_tokens,
        prefill_context_tokens2=facts.prefill_context_tokens2,
        decode_seqs=facts.decode_seqs,
        decode_context_tokens=facts.decode_context_tokens,
    )
