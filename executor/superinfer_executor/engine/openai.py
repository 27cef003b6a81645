"""vLLM's OpenAI serving layer in process: request models in, SSE lines or a response object out.

`created` is the first attempt's, so that a resumed stream is one response. Event loop only, except where
said.
"""

import time
from argparse import Namespace
from contextvars import ContextVar
from typing import Any

from starlette.datastructures import State
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.openai.chat_completion import serving as chat_serving
from vllm.entrypoints.openai.completion import serving as completion_serving
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.utils.api_utils import get_max_tokens

from superinfer_executor.engine.bodies import Body
from superinfer_executor.engine.refusals import refusal_of_response

CREATED_S: ContextVar[int] = ContextVar("superinfer_created_s", default=0)


class _CreatedClock:
    """Stands where the serving modules expect the time module; they use it for `created` only."""

    @staticmethod
    def time() -> float:
        """`created` of the current request, or now."""
        return CREATED_S.get() or time.time()


class OpenAISurface:
    """Chat and completions of one engine."""

    def __init__(self, llm: Any, state: State) -> None:
        self._llm = llm
        self._chat = state.openai_serving_chat
        self._completion = state.openai_serving_completion

    @classmethod
    async def create(cls, llm: Any, args: Namespace) -> "OpenAISurface":
        """The serving objects vLLM's own server would have with these arguments."""
        state = State()
        await init_app_state(llm, state, args, await llm.get_supported_tasks())
        for module in (chat_serving, completion_serving):
            module.time = _CreatedClock
        return cls(llm, state)

    @property
    def parses_output(self) -> bool:
        """Whether a tool or reasoning parser stands between generated text and chat content."""
        return self._chat.parser_cls is not None

    async def answer(self, body: Body) -> Any:
        """An iterator of SSE lines where the body streams, else the response object.

        Raises RequestRefusedError, and whatever vLLM raises for a body it does not like.
        """
        create = self._chat.create_chat_completion if body.chat else self._completion.create_completion
        result = await create(body.request, None)
        if isinstance(result, ErrorResponse):
            raise refusal_of_response(result)
        return result

    async def engine_inputs(self, body: Body) -> list[Any]:
        """Rendered prompts of a body, as `answer` would send them to the engine; no generation."""
        if body.chat:
            result = await self._chat.render_chat_request(body.request)
            if isinstance(result, ErrorResponse):
                raise refusal_of_response(result)
            return list(result[1])
        result = await self._completion.render_completion_request(body.request)
        if isinstance(result, ErrorResponse):
            raise refusal_of_response(result)
        return list(result)

    def max_tokens(self, body: Body, prompt_tokens: int) -> int:
        """What the engine would generate at most for one prompt, after all its defaults."""
        request, serving = body.request, self._chat if body.chat else self._completion
        asked = request.max_tokens
        if body.chat and request.max_completion_tokens is not None:
            asked = request.max_completion_tokens
        return int(
            get_max_tokens(
                self._llm.model_config.max_model_len,
                asked,
                prompt_tokens,
                serving.default_sampling_params,
                serving.override_max_tokens,
                truncate_prompt_tokens=request.truncate_prompt_tokens,
            )
        )

    def check_sampling(self, body: Body, max_tokens: int) -> None:
        """Raise what the engine would raise for the body's sampling parameters. Any thread."""
        serving = self._chat if body.chat else self._completion
        params = body.request.to_sampling_params(max_tokens, serving.default_sampling_params)
        processor = self._llm.input_processor
        params.verify(
            processor.model_config,
            processor.speculative_config,
            processor.structured_outputs_config,
            processor.tokenizer,
        )

    def use_rendered_prompt(self, body: Body, prompt_token_ids: list[int]) -> None:
        """Let `answer` skip template and tokenizer: the sidecar had this body rendered already."""
        request = body.request
        if request.echo or getattr(request, "return_prompt_text", False):
            return  # the text is needed, too
        if body.chat:
            # vLLM's own way to reuse a prompt's ids; it takes the key out again.
            request.kv_transfer_params = {"prompt_token_ids": prompt_token_ids}
        else:
            request.prompt = prompt_token_ids
            request.suffix = None
