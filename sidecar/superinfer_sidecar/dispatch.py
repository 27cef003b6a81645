"""Which queued requests the engine gets, and which can no longer start in time.

The window is max_num_seqs places plus a few spare ones, which only requests may take that the engine would
displace another for: so order stays here, by slack, and inside the batch the engine's scheduler decides.
"""

from typing import Final

from superinfer_core.scheduling.slack import end_deadline_ms, first_token_deadline_ms
from superinfer_core.slo import Rank
from superinfer_proto.v1 import work_pb2
from superinfer_sidecar.book import Book
from superinfer_sidecar.counters import Counters
from superinfer_sidecar.planner import Planner
from superinfer_sidecar.ports import EnginePort
from superinfer_sidecar.tracked import Tracked

_HANDED_OVER: Final = work_pb2.Submit()
"""Stands for a body that is the engine's now: bodies of running requests are not kept here."""


class Dispatcher:
    """Feeds the engine from the queue; owned by the Desk."""

    def __init__(self, book: Book, planner: Planner, counters: Counters, *, serves_everyone: bool) -> None:
        self._book = book
        self._planner = planner
        self._counters = counters
        self._serves_everyone = serves_everyone

    def hand_over_all(self, engine: EnginePort, now_ms: float) -> None:
        """Everything at once, in order of arrival: the engine's own scheduler decides (baselines)."""
        for request in list(self._book.queued.values()):
            if not request.restoring:
                self._send(request, engine, now_ms, None)

    def fill_window(self, engine: EnginePort, now_ms: float) -> list[Tracked]:
        """Hand over what the window has room for; answers whose turn came too late."""
        book, most = self._book, self._planner.max_num_seqs
        free = most - book.dispatched_places
        late = self._fill(free, engine, now_ms) if free > 0 else []
        if book.queued and 0 <= book.dispatched_places - most < self._planner.policy.window_extra:
            self._use_spare(engine, now_ms)
        return late

    def expired(self, now_ms: float) -> list[Tracked]:
        """Admitted requests still waiting here that would be late even if they started now.

        What is still being rendered was not promised anything: admission refuses it, and says why.
        """
        slack_ms = self._planner.slack_ms
        return [
            r for r in self._book.queued.values() if self._is_lost(r, slack_ms(r.state(), now_ms), now_ms)
        ]

    def _is_lost(self, request: Tracked, slack_ms: float, now_ms: float) -> bool:
        """Whether it can no longer start in time, and may be ended for it.

        Work that has begun elsewhere, or that was taken in whatever the prediction said, is served late.
        Until predictions rest on measurements, only a deadline that has passed counts.
        """
        if slack_ms >= 0 or self._serves_everyone or not self._planner.policy.shed_lost:
            return False
        if request.skip_admission or request.first_token_ms is not None:
            return False
        state = request.state()
        return self._planner.trusted or min(first_token_deadline_ms(state), end_deadline_ms(state)) < now_ms

    def gives_way(self, rank: Rank) -> Tracked | None:
        """The least important waiting request (the youngest of them), if sheddable and below `rank`."""
        waiting = (*self._book.queued.values(), *self._book.rendering.values())
        least = max(waiting, key=lambda request: (request.slo.rank, request.sequence), default=None)
        if least is None or not least.slo.rank.sheddable or not least.slo.rank > rank:
            return None
        return least

    def queued_prefill_tokens(self) -> int:
        """Prompt tokens that wait here."""
        return sum(request.prompt_tokens for request in self._book.queued.values())

    def backlog_ms(self) -> float:
        """Predicted time until work queued now would start, at the lowest rank."""
        left = sum(
            max(1, request.expected_output_tokens - request.output_tokens)
            for request in self._book.dispatched.values()
        )
        full = len(self._book.queued) + (self._book.dispatched_places >= self._planner.max_num_seqs)
        return self._planner.backlog_ms(self.queued_prefill_tokens(), full, left)

    def _fill(self, free: int, engine: EnginePort, now_ms: float) -> list[Tracked]:
        queued = self._book.queued
        chosen = [request for request in queued.values() if not request.restoring]
        if len(chosen) > 1:
            states = self._planner.order([request.state() for request in chosen], now_ms)
            chosen = [queued[state.request_id] for state in states]
        late = []
        for request in chosen:
            slack_ms = self._planner.slack_ms(request.state(), now_ms)
            if self._is_lost(request, slack_ms, now_ms):
                late.append(request)
                continue
            if request.places > free and self._book.dispatched:
                break  # it is its turn: it waits for its places, nobody overtakes it into them
            self._send(request, engine, now_ms, slack_ms)
            free -= request.places
            if free <= 0:
                break
        return late

    def _use_spare(self, engine: EnginePort, now_ms: float) -> None:
        book = self._book
        lowest = max(request.slo.rank for request in book.dispatched.values())
        if not any(request.slo.rank < lowest for request in book.queued.values()):
            return
        states = [request.state() for request in book.admitted()]
        for request_id in self._planner.preempting(states, now_ms):
            request = book.queued.get(request_id)
            if request is not None and not request.restoring:
                self._send(request, engine, now_ms, self._planner.slack_ms(request.state(), now_ms))

    def _send(self, request: Tracked, engine: EnginePort, now_ms: float, slack_ms: float | None) -> None:
        self._book.dispatch(request)
        if slack_ms is not None:
            self._counters.observe_slack(request.slo.contract, slack_ms)
        slo = request.submit.slo
        slo.elapsed_ms = max(0.0, now_ms - request.arrived_ms)
        if request.first_token_ms is not None:
            slo.since_first_token_ms = max(0.0, now_ms - request.first_token_ms)
        engine.submit(request.submit)
        if request.attempt > 1:
            request.owner.begun(request.request_id, request.attempt)
        request.submit = _HANDED_OVER
