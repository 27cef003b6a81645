"""Resume: delivered tokens go through vLLM's output processor again, in the groups they came in.

Afterwards detokeniser, stop strings and logprobs processor stand where they stood; the engine gets the
same tokens as OUTPUT tokens (extra_args `resume_token_ids`, read by the scheduler plug-in), so samplers,
penalties and grammars do too. Event loop only.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from vllm.v1.engine import EngineCoreOutput, FinishReason
from vllm.v1.outputs import LogprobsLists

from superinfer_executor.engine.request import DeliveredGroup
from superinfer_executor.engine.step_queue import StepQueue

GROUPS_PER_TURN: Final = 128
"""Long resumes give the other streams their turns."""
FINISH_REASONS: Final = {str(reason): reason for reason in FinishReason}


async def replay(
    llm: Any, request: Any, groups: Sequence[DeliveredGroup], queue: StepQueue, *, by_step: bool
) -> bool:
    """Feed the groups of one choice; True when that choice has ended with them.

    `request` is registered with the output processor, without a queue. Outputs go to `queue`: one by one
    where a parser must see them as it saw them before, else as one, which spares the serving layer's work.
    """
    processor = llm.output_processor
    params, max_model_len = request.sampling_params, llm.model_config.max_model_len
    whole = None
    for number, group in enumerate(groups):
        if number % GROUPS_PER_TURN == GROUPS_PER_TURN - 1:
            await asyncio.sleep(0)
        last = number == len(groups) - 1
        finish, stop_reason = _ending(request, groups, max_model_len) if last else (None, None)
        token_ids = list(group.token_ids)
        output = EngineCoreOutput(
            request_id=request.request_id,
            new_token_ids=token_ids,
            finish_reason=finish,
            stop_reason=stop_reason,
        )
        if params.num_logprobs is not None:
            output.new_logprobs = _unknown_logprobs(token_ids)
        for replayed in processor.process_outputs([output], time.monotonic(), None).request_outputs:
            if by_step or whole is None:
                queue.put_replayed(replayed)
                whole = replayed
            else:
                whole.add(replayed, aggregate=True)
        if request.request_id not in processor.request_states:
            return True
    state = processor.request_states[request.request_id]
    state.queue = queue
    # Cached-token counts come with the first live token, as in a run that was never cut.
    state.is_prefilling = True
    return False


def _ending(
    request: Any, groups: Sequence[DeliveredGroup], max_model_len: int
) -> tuple[Any, int | str | None]:
    """Finish and stop reason of the last delivered group: as recorded, else as the engine would decide."""
    params, group = request.sampling_params, groups[-1]
    if group.finish_reason:
        return FINISH_REASONS[group.finish_reason], _stop_reason(group.stop_reason, params)
    tokens = sum(len(each.token_ids) for each in groups)
    last_token = group.token_ids[-1] if group.token_ids else None
    if last_token is not None and last_token == params.eos_token_id:
        return FinishReason.STOP, None
    if last_token in (params.stop_token_ids or ()):
        return FinishReason.STOP, last_token
    if tokens >= params.max_tokens or tokens + len(request.prompt_token_ids) >= max_model_len:
        return FinishReason.LENGTH, None
    return None, None


def _stop_reason(recorded: str, params: Any) -> int | str | None:
    """The wire carries text: a number is a token id unless it is one of the stop strings."""
    if not recorded:
        return None
    if recorded.isdigit() and recorded not in (params.stop or ()):
        return int(recorded)
    return recorded


def _unknown_logprobs(token_ids: list[int]) -> Any:
    """Placeholders: chunks of replayed tokens are never sent again, but the counts must add up."""
    return LogprobsLists(
        np.array([[token] for token in token_ids], dtype=np.int64).reshape(len(token_ids), 1),
        np.zeros((len(token_ids), 1), dtype=np.float32),
        np.ones(len(token_ids), dtype=np.int64),
    )
