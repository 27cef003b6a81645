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

    def __init__(self, book: Book, planner: Planner, counters: Counters, *, pass_through: bool) -> None:
        self._book = book
        self._planner = planner
        self._counters = counters
        self._pass_through = pass_through

    def run(self, engine: EnginePort, now_ms: float) -> None:
        """Hand over what the window has room for."""
        book = self._book
        if self._pass_through:
            for request in list(book.queued.values()):
                self._send(request, engine, now_ms)
            return
        free = self._planner.max_num_seqs - book.dispatched_places
        if free > 0:
            self._fill(free, engine, now_ms)
        over = book.dispatched_places - self._planner.max_num_seqs
        if book.queued and 0 <= over < self._planner.policy.window_extra:
            self._use_spare(engine, now_ms)

    def expired(self, now_ms: float) -> list[Tracked]:
        """Requests still waiting here that would be late even if they started now.

        Until predictions rest on measurements, only those whose first token or end was due already.
        """
        planner = self._planner
        if self._pass_through or not planner.policy.shed_lost:
            return []
        late = []
        for request in (*self._book.queued.values(), *self._book.rendering.values()):
            state = request.state()
            over = min(first_token_deadline_ms(state), end_deadline_ms(state)) < now_ms
            if over or (planner.trusted and planner.slack_ms(state, now_ms) < 0):
                late.append(request)
        return late

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

    def _fill(self, free: int, engine: EnginePort, now_ms: float) -> None:
        queued = self._book.queued
        if len(queued) == 1:
            chosen = list(queued.values())
        else:
            states = [request.state() for request in queued.values()]
            chosen = [queued[state.request_id] for state in self._planner.order(states, now_ms)]
        for request in chosen:
            if request.places > free and self._book.dispatched:
                return  # it is its turn: it waits for its places, nobody overtakes it into them
            self._send(request, engine, now_ms)
            free -= request.places
            if free <= 0:
                return

    def _use_spare(self, engine: EnginePort, now_ms: float) -> None:
        book = self._book
        lowest = max(request.slo.rank for request in book.dispatched.values())
        if not any(request.slo.rank < lowest for request in book.queued.values()):
            return
        states = [request.state() for request in book.admitted()]
        for request_id in self._planner.preempting(states, now_ms):
            request = book.queued.get(request_id)
            if request is not None:
                self._send(request, engine, now_ms)

    def _send(self, request: Tracked, engine: EnginePort, now_ms: float) -> None:
        self._book.dispatch(request)
        if not self._pass_through:
            slack = self._planner.slack_ms(request.state(), now_ms)
            self._counters.observe_slack(request.slo.contract, slack)
        slo = request.submit.slo
        slo.elapsed_ms = max(0.0, now_ms - request.arrived_ms)
        if request.first_token_ms is not None:
            slo.since_first_token_ms = max(0.0, now_ms - request.first_token_ms)
        engine.submit(request.submit)
        request.submit = _HANDED_OVER
