"""vLLM's requests as the core's RequestState: what vLLM does not know of a request is kept beside it.

Promise: the view of one instant; nothing here changes a vLLM object. Owned by the scheduler's thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from superinfer_core.scheduling.state import Phase, RequestState
from superinfer_executor.plugin.request_slo import EnginePromise

if TYPE_CHECKING:
    from vllm.v1.request import Request

MAX_QUEUEING_MS: Final = 600_000.0
"""More than this between vLLM's front end and its core means that the wall clock was set."""


@dataclass(slots=True)
class TrackedRequest:
    """One request of the engine.

    Attributes:
        promise: as it came.
        arrived_ms: arrival at the ingress, on this process' monotonic clock.
        first_token_ms: when the first token came out (also before a resume), or None.
        expected_output_tokens: predicted total output.
    """

    promise: EnginePromise
    arrived_ms: float
    first_token_ms: float | None
    expected_output_tokens: int


def track(request: "Request", promise: EnginePromise, now_ms: float, wall_s: float) -> TrackedRequest:
    """Start following a request that reaches the scheduler at `now_ms` (wall clock `wall_s`)."""
    # vLLM stamps arrival_time in its front end with the wall clock: the only time that crosses over.
    on_the_way_ms = min(MAX_QUEUEING_MS, max(0.0, (wall_s - request.arrival_time) * 1000.0))
    since_first_ms = promise.since_first_token_ms
    return TrackedRequest(
        promise=promise,
        arrived_ms=now_ms - promise.elapsed_ms - on_the_way_ms,
        first_token_ms=None if since_first_ms is None else now_ms - since_first_ms - on_the_way_ms,
        expected_output_tokens=min(promise.expected_output_tokens or request.max_tokens, request.max_tokens),
    )


def pending_tokens(request: "Request") -> int:
    """Tokens vLLM would compute for it next if nothing bounded the step."""
    return int(request.num_tokens_with_spec + request.num_output_placeholders - request.num_computed_tokens)


def running_phase(request: "Request") -> Phase:
    """Whether a member of the batch decodes or still computes what came before its next token."""
    if pending_tokens(request) > 1 + len(request.spec_token_ids):
        return Phase.PREFILL
    # One token to compute: a decode, unless it is the last token of the prompt.
    begun = request.num_output_tokens or request.num_output_placeholders
    return Phase.DECODE if begun else Phase.PREFILL


def request_state(request: "Request", tracked: TrackedRequest, phase: Phase) -> RequestState:
    """The core's view of one request."""
    output = request.num_output_tokens
    return RequestState(
        request.request_id,
        tracked.promise.slo,
        tracked.arrived_ms,
        phase,
        request.num_prompt_tokens,
        min(request.num_computed_tokens, request.num_tokens),
        output,
        max(output + 1, tracked.expected_output_tokens),
        tracked.first_token_ms,
        request.num_preemptions,
    )


def prune(tracked: dict[str, TrackedRequest], alive: Iterable[str]) -> dict[str, TrackedRequest]:
    """`tracked` without the requests that have left the engine."""
    return {request_id: tracked[request_id] for request_id in alive if request_id in tracked}
