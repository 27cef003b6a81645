"""Meters engine steps: what each computed, how long it took; feeds the online model and the facts channel.

Promise: every step that computed something is metered once, whether steps follow or overlap one another
(vLLM's async scheduling); bounded memory. One owner thread.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from superinfer_core.prediction.step_model import StepFacts

MAX_IN_FLIGHT: Final = 64
"""vLLM overlaps two steps (pipeline stages + 1 with pipeline parallelism); more means outputs never came."""


@dataclass(slots=True)
class StepInFlight:
    """A step that was scheduled and whose output has not come.

    Attributes:
        output: vLLM's SchedulerOutput; held so that its identity cannot be reused.
        began_ms: when scheduling began.
        plan_ms: time spent deciding.
        prefill_budget_tokens: what the plan allowed, or None.
    """

    output: Any
    began_ms: float
    plan_ms: float
    prefill_budget_tokens: int | None
    prefill_tokens: int = 0
    prefill_context_tokens2: float = 0.0
    decode_seqs: int = 0
    decode_context_tokens: int = 0
    preemptions: list[tuple[str, str, int]] = field(default_factory=list)

    def count(
        self, scheduled: Mapping[str, int], computed_after: Mapping[str, int], decoding: Iterable[str]
    ) -> None:
        """Count the tokens of a step just scheduled, when vLLM has already added them to what is computed."""
        decodes = set(decoding)
        for request_id, tokens in scheduled.items():
            before = max(0, computed_after[request_id] - tokens)
            if request_id in decodes:
                self.decode_seqs += 1
                self.decode_context_tokens += before
            else:
                self.prefill_tokens += tokens
                self.prefill_context_tokens2 += tokens * (before + tokens / 2)


class StepMeter:
    """Steps in flight, and the clock of the last one that ended."""

    def __init__(self) -> None:
        self._in_flight: OrderedDict[int, StepInFlight] = OrderedDict()
        self._last_end_ms = 0.0
        self._stayed_busy = False
        self.steps = 0

    def scheduled(self, step: StepInFlight) -> None:
        """A step goes to the workers."""
        self._in_flight[id(step.output)] = step
        while len(self._in_flight) > MAX_IN_FLIGHT:
            self._in_flight.popitem(last=False)

    def ended(self, output: Any, now_ms: float, *, busy: bool) -> tuple[StepInFlight, StepFacts] | None:
        """The facts of the step whose output has come; None when it computed nothing.

        `busy` says whether requests are still running. Then the next step counts from here: what the engine
        does between steps (handing outputs on, taking new work in) is time every token pays for.
        """
        step = self._in_flight.pop(id(output), None)
        if step is None:
            return None
        # Where steps overlap, a step has the workers from the end of the one before.
        began_ms = self._last_end_ms if self._stayed_busy else max(step.began_ms, self._last_end_ms)
        self._last_end_ms, self._stayed_busy = now_ms, busy
        if not step.prefill_tokens and not step.decode_seqs:
            return None
        self.steps += 1
        return step, StepFacts(
            step_ms=max(1e-3, now_ms - began_ms),
            prefill_tokens=step.prefill_tokens,
            prefill_context_tokens2=step.prefill_context_tokens2,
            decode_seqs=step.decode_seqs,
            decode_context_tokens=step.decode_context_tokens,
        )
