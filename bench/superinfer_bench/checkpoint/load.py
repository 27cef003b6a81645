"""One ingress' stream to a sidecar, and bursts of requests over it whose every token is timed.

Concurrency: one asyncio loop.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio

from superinfer_bench.stack import BenchFailed
from superinfer_proto.v1 import sidecar_pb2, sidecar_pb2_grpc, slo_pb2, work_pb2

ANSWER_S = 900.0
START_S = 600.0


@dataclass(slots=True)
class Burst:
    """What one burst gave.

    Attributes:
        tokens: generated.
        prompt_tokens: computed before them.
        seconds: from the first submit to the last token.
        gaps_ms: between the tokens of each request.
    """

    tokens: int
    prompt_tokens: int
    seconds: float
    gaps_ms: list[float]

    @property
    def tokens_per_s(self) -> float:
        """Generated, prefill included in the time."""
        return self.tokens / self.seconds


@dataclass(slots=True)
class Client:
    """See the module."""

    address: str
    model: str
    _call: Any = None
    _channel: Any = None
    _number: int = 0
    _greeted: sidecar_pb2.ExecutorInfo = field(default_factory=sidecar_pb2.ExecutorInfo)

    async def __aenter__(self) -> Self:
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            try:
                await self._open()
                return self
            except grpc.aio.AioRpcError:
                await self._channel.close()
                await asyncio.sleep(1.0)
        raise BenchFailed(f"no engine behind {self.address} within {START_S:g} s")

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()
        await self._channel.close()

    async def _open(self) -> None:
        self._channel = grpc.aio.insecure_channel(self.address)
        self._call = sidecar_pb2_grpc.SidecarStub(self._channel).Serve()  # type: ignore[no-untyped-call]
        await self._call.write(sidecar_pb2.ToSidecar(hello=sidecar_pb2.Hello(ingress_id="bench")))
        async with asyncio.timeout(START_S):
            while not self._greeted.engine.generation:
                message = await self._call.read()
                if message.HasField("info"):
                    self._greeted = message.info

    async def peers(self, **addresses: str) -> None:
        """Say who the pool is; the sidecar copies to whom it may."""
        peers = [sidecar_pb2.Peer(executor=name, address=address) for name, address in addresses.items()]
        await self._call.write(sidecar_pb2.ToSidecar(peers=sidecar_pb2.PeerList(peers=peers)))

    async def burst(self, prompts: list[list[int]], output_tokens: int) -> Burst:
        """All at once; every prompt should be new, or the cache answers."""
        submits = [self._submit(prompt, output_tokens) for prompt in prompts]
        began_s = time.perf_counter()
        await self._call.write(sidecar_pb2.ToSidecar(submits=submits))
        last_s: dict[str, float] = {}
        gaps_ms: list[float] = []
        tokens, open_requests = 0, {submit.request_id for submit in submits}
        async with asyncio.timeout(ANSWER_S):
            while open_requests:
                message = await self._call.read()
                if message is grpc.aio.EOF:
                    raise BenchFailed("the sidecar ended the stream")
                now_s = time.perf_counter()
                for output in message.frame.outputs:
                    if output.HasField("error"):
                        raise BenchFailed(f"a request failed: {output.error.message}")
                    if output.token_ids:
                        tokens += len(output.token_ids)
                        if output.request_id in last_s:
                            gaps_ms.append((now_s - last_s[output.request_id]) * 1000)
                        last_s[output.request_id] = now_s
                    if output.final:
                        open_requests.discard(output.request_id)
        seconds = max(last_s.values()) - began_s
        return Burst(tokens, sum(map(len, prompts)), seconds, gaps_ms)

    def _submit(self, prompt: list[int], output_tokens: int) -> work_pb2.Submit:
        self._number += 1
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
        }
        return work_pb2.Submit(
            request_id=f"bench-{self._number}",
            attempt=1,
            path="/v1/completions",
            body=json.dumps(body).encode(),
            slo=slo_pb2.RequestSlo(
                contract="bench", tier=slo_pb2.TIER_GOLD, contract_holds=True, budget_left=1.0
            ),
            admission=work_pb2.ADMISSION_MODE_SKIP,
            created_s=1,
        )
