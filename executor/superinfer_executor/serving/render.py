"""Render: what a body means to the engine, before anybody queues it. No generation.

Bounded: bodies above what the context can hold are refused by their size, at most a few are rendered at
a time, and tokenising and schema checks run in threads. Event loop only.
"""

import asyncio
from typing import Any, Final

from superinfer_executor.engine.bodies import Body, parse_body
from superinfer_executor.engine.openai import OpenAISurface
from superinfer_executor.engine.refusals import refusal_of
from superinfer_executor.engine.resumable import why_not_resumable
from superinfer_proto.v1 import engine_pb2

CONCURRENT_RENDERS: Final = 32


class Renderer:
    """See the module."""

    def __init__(self, surface: OpenAISurface, llm: Any, *, limit_bytes: int, scheduler: str) -> None:
        self._surface = surface
        self._llm = llm
        self._limit_bytes = limit_bytes
        self._scheduler = scheduler
        self._slots = asyncio.Semaphore(CONCURRENT_RENDERS)

    async def render(self, asked: engine_pb2.RenderRequest) -> engine_pb2.Rendered:
        """The answer to one body; errors are part of it."""
        async with self._slots:
            try:
                return await self._render(asked)
            except Exception as error:  # noqa: BLE001 (whatever a body provokes is an answer, not a crash)
                return engine_pb2.Rendered(request_id=asked.request_id, error=refusal_of(error).as_proto)

    async def _render(self, asked: engine_pb2.RenderRequest) -> engine_pb2.Rendered:
        body = parse_body(asked.path, asked.body, limit_bytes=self._limit_bytes)
        inputs = await self._surface.engine_inputs(body)
        prompts = [list(each["prompt_token_ids"]) for each in inputs]
        max_tokens = min(self._surface.max_tokens(body, len(prompt)) for prompt in prompts)
        await self._check(body, inputs, max_tokens)
        choices = (body.request.n or 1) * len(prompts)
        return engine_pb2.Rendered(
            request_id=asked.request_id,
            prompt_token_ids=prompts[0],
            total_prompt_tokens=sum(len(prompt) for prompt in prompts),
            max_tokens=max_tokens,
            choices=choices,
            stream=bool(body.request.stream),
            resumable=why_not_resumable(body, self._scheduler) is None,
            min_tokens=_least_tokens(body.request, max_tokens),
        )

    async def _check(self, body: Body, inputs: list[Any], max_tokens: int) -> None:
        """What the engine would refuse later, refused now."""
        for each in inputs:
            self._llm.input_processor._validate_model_inputs(None, each)  # noqa: SLF001 (no public way)
        if body.request.extract_structured_outputs() is not None:
            # Compiles a grammar.
            await asyncio.to_thread(self._surface.check_sampling, body, max_tokens)
        else:
            self._surface.check_sampling(body, max_tokens)


def _least_tokens(request: Any, max_tokens: int) -> int:
    """What no answer to the body is shorter than."""
    if request.ignore_eos and not request.stop and not request.stop_token_ids:
        return max_tokens
    return min(max_tokens, request.min_tokens or 0)
