"""One frame per engine step: collects what a step's requests say and sends it when the last has spoken.

A step starts when vLLM hands over its outputs; each request named in it settles once the serving layer
has made its chunks. The frame leaves with the last of them, in the same turn of the loop as a rule. If
one never settles (it is being aborted, a parser is stuck) the frame leaves without it after a moment, and
what it says later goes with the next. Event loop only.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from superinfer_proto.v1 import work_pb2

LATE_S: Final = 0.02


class FrameSink(Protocol):
    """Where frames go: one Run stream."""

    def send(self, frame: work_pb2.Frame) -> None:
        """Queue a frame; never blocks."""


class FrameAssembler:
    """See the module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        is_running: Callable[[str], bool],
        take_facts: Callable[[], list[work_pb2.StepFacts]] = list,
    ) -> None:
        self._loop = loop
        self._is_running = is_running
        self._take_facts = take_facts
        self._sinks: dict[FrameSink, list[work_pb2.Output]] = {}
        self._awaited: set[str] = set()
        self._settled = asyncio.Event()
        self._flush_is_due = False
        self.step = 0

    def add_sink(self, sink: FrameSink) -> None:
        """A sidecar has come: it gets the facts of every step and the outputs of its own requests."""
        self._sinks[sink] = []

    def remove_sink(self, sink: FrameSink) -> None:
        """A sidecar has gone; what was collected for it goes with it."""
        self._sinks.pop(sink, None)

    async def ready(self) -> None:
        """Return once the step under way has left, at the latest after a moment."""
        while self._awaited:
            self._settled.clear()
            await self._settled.wait()

    def begin_step(self, engine_ids: Iterable[str]) -> None:
        """An engine step has arrived with output for these."""
        if any(self._sinks.values()):
            self._flush()  # what came too late for the step before
        self.step += 1
        self._awaited = {engine_id for engine_id in engine_ids if self._is_running(engine_id)}
        if self._awaited:
            self._loop.call_later(LATE_S, self._look_for_late, self.step)

    def settle(self, engine_id: str) -> None:
        """This one has said all it says in this step, or will say nothing more."""
        if engine_id in self._awaited:
            self._awaited.discard(engine_id)
            if not self._awaited:
                self._flush()

    def add(self, sink: FrameSink, output: work_pb2.Output) -> None:
        """An output: into the current step's frame, or into one of its own when no step is under way."""
        outputs = self._sinks.get(sink)
        if outputs is None:
            return
        outputs.append(output)
        if not self._awaited:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Send what there is at the end of this turn of the loop, unless a step is under way."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush_due)

    def flush_now(self) -> None:
        """Send what there is: nothing more is coming."""
        self._awaited.clear()
        self._flush()

    def _flush_due(self) -> None:
        self._flush_is_due = False
        if not self._awaited:
            self._flush()

    def _look_for_late(self, step: int) -> None:
        # A timer may fire before the readers had their turn, when the whole process was kept waiting.
        if step == self.step and self._awaited:
            self._loop.call_soon(self._flush_late, step)

    def _flush_late(self, step: int) -> None:
        if step == self.step and self._awaited:
            self._awaited.clear()
            self._flush()

    def _flush(self) -> None:
        self._settled.set()
        # Facts of steps without output (prefill only) come first, in frames of their own.
        taken = self._take_facts()
        earlier, facts = taken[:-1], taken[-1] if taken else None
        for sink, outputs in self._sinks.items():
            for fact in earlier:
                sink.send(work_pb2.Frame(step=self.step, facts=fact))
            if outputs or facts is not None:
                sink.send(work_pb2.Frame(step=self.step, outputs=outputs, facts=facts))
                outputs.clear()
