"""vLLM's AsyncLLM, one engine step at a time.

Promises: every output of a request is told to its owner together with its token ids, one engine step at
a time, before vLLM's serving layer makes chunks of it; a request is resumed from delivered tokens; one
that is no longer read is aborted in the engine at once. Event loop only.
"""

import asyncio
from collections.abc import AsyncGenerator
from copy import copy
from typing import Any, Protocol

from typing_extensions import override
from vllm.renderers.inputs.preprocess import extract_prompt_components
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from superinfer_executor.engine.replay import replay
from superinfer_executor.engine.request import CURRENT_REQUEST, EngineRequest
from superinfer_executor.engine.step_queue import StepQueue
from superinfer_executor.plugin.request_slo import RESUME_TOKEN_IDS


class StepListener(Protocol):
    """Who hears the engine's steps."""

    async def ready(self) -> None:
        """Return once the step before has been dealt with; the next one waits for it."""

    def on_step(self, engine_ids: list[str]) -> None:
        """A step has arrived with output for these; vLLM processes it right after this call."""

    def on_dead(self, error: BaseException) -> None:
        """No step will come any more."""


class StepwiseLLM(AsyncLLM):  # type: ignore[misc]
    """An AsyncLLM whose owner hears every step. See the module."""

    def listen(self, listener: StepListener) -> None:
        """Tell `listener` of every engine step from now on."""
        get_output = self.engine_core.get_output_async

        async def get_output_and_tell() -> Any:
            # Several steps may be there already; without this the readers of the first would not get a turn.
            await listener.ready()
            try:
                outputs = await get_output()
            except Exception as error:
                listener.on_dead(error)
                raise
            if outputs.outputs:
                listener.on_step([output.request_id for output in outputs.outputs])
            return outputs

        self.engine_core.get_output_async = get_output_and_tell
        # The handler that vLLM started at construction sits in the unwrapped call; start it afresh.
        handler, self.output_handler = getattr(self, "output_handler", None), None
        if handler is not None:
            handler.cancel()
        self._run_output_handler()

    @override
    def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        owner = CURRENT_REQUEST.get()
        if owner is None:
            unowned: AsyncGenerator[Any, None] = super().generate(
                prompt, sampling_params, request_id, **options
            )
            return unowned
        return self._generate(owner, owner.prompt_number(), prompt, sampling_params, request_id, options)

    async def _generate(
        self,
        owner: EngineRequest,
        number: int,
        prompt: Any,
        params: Any,
        request_id: str,
        options: dict[str, Any],
    ) -> AsyncGenerator[Any, None]:
        queue = StepQueue(request_id)
        engine_ids: list[str] = []
        try:
            request = await self._engine_request(owner, prompt, params, request_id, options)
            prompt_text, _, _ = extract_prompt_components(self.model_config, prompt)
            for choice in range(params.n):
                await self._start(owner, number, choice, request, prompt_text, queue, engine_ids)
            whole = None
            open_choices = params.n
            while open_choices:
                output, replayed = await queue.get()
                if replayed and owner.parsed:
                    await asyncio.sleep(0)  # a long resume must not hold up the other streams
                (completion,) = output.outputs
                if completion.finish_reason is not None:
                    open_choices -= 1
                output.finished = not open_choices
                owner.told(number, output, replayed=replayed)
                _cap_cached_tokens(output)
                if owner.streams:
                    yield output
                else:
                    whole = _joined(whole, output)
                # What the last output becomes is settled by the owner, with the end of the response.
                if open_choices or owner.interleaved:
                    owner.settled(number, output)
            if whole is not None:
                whole.outputs.sort(key=lambda each: each.index)
                yield whole
        except (asyncio.CancelledError, GeneratorExit):
            await self.abort(engine_ids, internal=True)
            raise
        except Exception as error:
            owner.failed(error)
            await self._abort_quietly(engine_ids)
            raise

    async def _engine_request(
        self, owner: EngineRequest, prompt: Any, params: Any, request_id: str, options: dict[str, Any]
    ) -> Any:
        """The engine request for all choices: validated, with the promise in it."""
        if self.errored:
            raise EngineDeadError
        # Every step is wanted, whatever the client asked to be sent.
        params.output_kind = RequestOutputKind.DELTA
        params.stream_interval = None
        params.extra_args = {**(params.extra_args or {}), **owner.extra_args()}
        request = self.input_processor.process_inputs(
            request_id,
            prompt,
            params,
            supported_tasks=await self.get_supported_tasks(),
            lora_request=options.get("lora_request"),
            trace_headers=options.get("trace_headers"),
            priority=owner.priority,
            session_id=options.get("session_id"),
        )
        request.external_req_id = request_id
        if options.get("reasoning_ended") is not None:
            request.reasoning_ended = options["reasoning_ended"]
        if options.get("reasoning_parser_kwargs") is not None:
            request.reasoning_parser_kwargs = options["reasoning_parser_kwargs"]
        return request

    async def _start(
        self,
        owner: EngineRequest,
        number: int,
        choice: int,
        request: Any,
        prompt_text: str | None,
        queue: StepQueue,
        engine_ids: list[str],
    ) -> None:
        """Register one choice with the output processor, replay what was delivered, hand it to the engine."""
        child = copy(request)
        child.request_id = owner.engine_id(number, choice)
        child.sampling_params = params = copy(request.sampling_params)
        if params.n > 1:
            # As vLLM's own fan-out seeds its children.
            params.n = 1
            params.seed = None if params.seed is None else params.seed + choice
        groups = [group for group in owner.delivered if group.choice == choice]
        engine_ids.append(child.request_id)
        if not groups:
            self.output_processor.add_request(child, prompt_text, None, choice, queue)
        else:
            token_ids = [token for group in groups for token in group.token_ids]
            self.renderer.validate_token_ids(token_ids)  # one the model lacks would end the engine
            params.extra_args = {**params.extra_args, RESUME_TOKEN_IDS: token_ids}
            self.output_processor.add_request(child, prompt_text, None, choice, None)
            if await replay(self, child, groups, queue, by_step=owner.parsed):
                return
        await self.engine_core.add_request_async(child)

    async def _abort_quietly(self, engine_ids: list[str]) -> None:
        """Abort after a failure that is reported already."""
        if engine_ids and not self.errored:
            await self.abort(engine_ids, internal=True)


def _cap_cached_tokens(output: Any) -> None:
    """Clients are told of cached tokens of their prompt; of a resumed request more may be cached."""
    if output.num_cached_tokens is not None:
        output.num_cached_tokens = min(output.num_cached_tokens, len(output.prompt_token_ids or ()))


def _joined(whole: Any, output: Any) -> Any:
    """The whole answer so far, from its steps, as a serving layer that does not stream expects it."""
    if whole is None:
        return output
    whole.add(output, aggregate=True)
    return whole
