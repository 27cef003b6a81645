"""The state of one engine as every scheduling decision sees it.

Times are milliseconds on one monotonic clock of the calling process. The sidecar builds these from its
queue and the engine's frames, the scheduler plug-in from vLLM's requests, the simulator from its events.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Self

from superinfer_core.slo import RequestSlo


class Phase(Enum):
    """Where a request stands on one engine."""

    WAITING = auto()
    """Not in the batch: queued in the sidecar, or waiting or displaced inside the engine."""
    PREFILL = auto()
    """In the batch, its prompt not fully computed."""
    DECODE = auto()
    """In the batch, producing tokens."""


@dataclass(frozen=True, slots=True)
class RequestState:
    """One request at one instant.

    Attributes:
        request_id: unique within the engine.
        slo: its promise.
        arrived_ms: arrival at the ingress, on this process' clock.
        phase: see Phase.
        prompt_tokens: tokens of the prompt.
        computed_tokens: tokens whose KV is there (prompt and output); 0 after a preemption without cache.
        output_tokens: tokens generated so far.
        expected_output_tokens: predicted total output at the request's quantile, at least output_tokens + 1.
        first_token_ms: when the first token came out, or None.
        preemptions: how often it was displaced.
        places: places of the batch it takes, one per choice (n > 1); output counts are those of one choice.
    """

    request_id: str
    slo: RequestSlo
    arrived_ms: float
    phase: Phase
    prompt_tokens: int
    computed_tokens: int
    output_tokens: int
    expected_output_tokens: int
    first_token_ms: float | None = None
    preemptions: int = 0
    places: int = 1

    @property
    def prefill_left_tokens(self) -> int:
        """Tokens to compute before the next token can come out: prompt, and output lost to a preemption."""
        total = self.prompt_tokens + self.output_tokens
        if self.phase is Phase.DECODE:
            return 0
        return max(1, total - self.computed_tokens)


@dataclass(frozen=True, slots=True)
class EngineState:
    """One engine at one instant: its limits, and every request it or its queue holds.

    Attributes:
        max_num_seqs: places in the batch.
        max_step_tokens: tokens one step may compute (vLLM's max_num_batched_tokens).
        kv_total_tokens: tokens of KV the engine can hold.
        requests: everything running or waiting, in no particular order.
    """

    max_num_seqs: int
    max_step_tokens: int
    kv_total_tokens: int
    requests: tuple[RequestState, ...] = ()

    def without(self, displaced: Collection[str]) -> Self:
        """The same with these requests out of the batch: waiting again, with nothing computed."""
        return replace(
            self,
            requests=tuple(
                replace(r, phase=Phase.WAITING, computed_tokens=0, preemptions=r.preemptions + 1)
                if r.request_id in displaced
                else r
                for r in self.requests
            ),
        )

    @property
    def running_places(self) -> int:
        """Places of the batch that are taken."""
        return places_of(r for r in self.requests if r.phase is not Phase.WAITING)


def places_of(requests: Iterable[RequestState]) -> int:
    """Places of the batch that `requests` take."""
    return sum(r.places for r in requests)
