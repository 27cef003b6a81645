"""The desk under any traffic: nothing is ever left behind."""

import hypothesis.strategies as st
from desk_room import FakeEngine, FakeIngress, Room
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from superinfer_core.refusal import RefusalCode
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_proto.v1 import engine_pb2, slo_pb2, work_pb2
from superinfer_sidecar.tracked import Stage

CODES = {code.value for code in RefusalCode}


class Traffic(RuleBasedStateMachine):
    """Any sequence of submits, cancels, steps and failures: counts fit, and everything ends exactly once."""

    requests = Bundle("requests")

    @initialize(pass_through=st.booleans(), window_extra=st.integers(0, 2), max_queued=st.integers(1, 6))
    def start(self, pass_through: bool, window_extra: int, max_queued: int) -> None:
        policy = SchedulingPolicy(window_extra=window_extra)
        self.room = Room(policy=policy, max_queued=max_queued, pass_through=pass_through)
        self.ingresses = [FakeIngress(), FakeIngress()]
        self.given_up: set[tuple[str, int]] = set()

    @rule(
        target=requests,
        name=st.sampled_from("abcdefghijklmnopqrst"),
        attempt=st.integers(0, 3),
        who=st.integers(0, 1),
        ttft=st.sampled_from([None, -1.0, 0.5, 50.0, 60_000.0]),
        best_effort=st.booleans(),
        skip=st.booleans(),
        tier=st.integers(0, 3),
    )
    def submit(self, name, attempt, who, ttft, best_effort, skip, tier):
        slo = slo_pb2.RequestSlo(tier=tier, best_effort=best_effort, ttft_target_ms=ttft)
        submit = work_pb2.Submit(request_id=name, attempt=attempt, path="/p", body=b"x" * 100, slo=slo)
        if skip:
            submit.admission = work_pb2.ADMISSION_MODE_SKIP
        known = self.room.desk.book.by_id.get(name)
        if ttft != -1.0 and known is not None and known.attempt < attempt:
            self.given_up.add((name, known.attempt))
        self.room.desk.submit([submit], self.ingresses[who])
        entered = self.room.desk.book.by_id.get(name)
        if entered is not None:
            self.given_up.discard((name, entered.attempt))
        return name, attempt, who

    @rule(request=consumes(requests))
    def cancel(self, request):
        name, attempt, who = request
        known = self.room.desk.book.by_id.get(name)
        if known is not None and known.owner is self.ingresses[who] and known.attempt <= attempt:
            self.given_up.add((name, known.attempt))
        self.room.desk.cancel([work_pb2.Cancel(request_id=name, attempt=attempt)], self.ingresses[who])

    @rule(error=st.booleans(), choices=st.integers(0, 3))
    def render(self, error, choices):
        engine = self.room.desk.engine
        if engine is None:
            return
        ids, engine.renders = engine.renders, []
        batch = []
        for name in ids:
            rendered = engine_pb2.Rendered(
                request_id=name, total_prompt_tokens=5, max_tokens=10, choices=choices
            )
            if error:
                rendered.error.code = "no such code"
            batch.append(rendered)
        self.room.desk.rendered(batch)

    @rule(data=st.data())
    def step(self, data):
        engine = self.room.desk.engine
        if engine is None or not engine.holds:
            return
        held = sorted(engine.holds)
        chosen = data.draw(st.lists(st.sampled_from(held), unique=True))
        final = data.draw(st.lists(st.sampled_from(held), unique=True))
        self.room.engine = engine
        for owner, name in zip(
            self.room.step(dict.fromkeys(chosen, 1), final=tuple(set(chosen) & set(final))),
            chosen,
            strict=True,
        ):
            assert owner is not None, f"the engine held {name}, which nobody knows"

    @rule()
    def engine_dies(self):
        self.room.desk.engine_lost()

    @rule()
    def engine_comes(self):
        if self.room.desk.engine is None:
            self.room.desk.engine_up(FakeEngine())

    @rule(who=st.integers(0, 1))
    def ingress_leaves(self, who):
        gone = self.ingresses[who]
        for request in self.room.desk.book.by_id.values():
            if request.owner is gone:
                self.given_up.add((request.request_id, request.attempt))
        self.room.desk.ingress_lost(gone)

    @rule(elapsed_ms=st.sampled_from([1.0, 50.0, 5000.0]))
    def time_passes(self, elapsed_ms):
        self.room.now_ms += elapsed_ms
        self.room.desk.tick(elapsed_ms)

    @invariant()
    def the_counts_are_those_of_the_requests(self):
        book = self.room.desk.book
        stages = {
            Stage.RENDERING: book.rendering,
            Stage.QUEUED: book.queued,
            Stage.DISPATCHED: book.dispatched,
        }
        for stage, requests in stages.items():
            expected = {name for name, request in book.by_id.items() if request.stage is stage}
            assert set(requests) == expected
        waiting = (*book.rendering.values(), *book.queued.values())
        assert book.waiting_bytes == sum(request.body_bytes for request in waiting)
        assert book.dispatched_places == sum(request.places for request in book.dispatched.values())

    @invariant()
    def the_engine_holds_exactly_what_was_dispatched(self):
        desk = self.room.desk
        held = {name: submit.attempt for name, submit in desk.engine.holds.items()} if desk.engine else {}
        assert held == {name: request.attempt for name, request in desk.book.dispatched.items()}

    @invariant()
    def refusals_are_of_the_closed_list(self):
        for ingress in self.ingresses:
            for decision in ingress.decisions:
                assert decision.admitted or decision.refusal.error.code in CODES

    def teardown(self):
        if not hasattr(self, "room"):
            return
        desk = self.room.desk
        desk.end_all()
        book = desk.book
        assert (len(book), book.waiting_bytes, book.dispatched_places) == (0, 0, 0)
        assert not book.queued
        assert not book.dispatched
        for ingress in self.ingresses:
            errors = [(o.request_id, o.attempt) for o in ingress.outputs if o.final]
            assert not set(errors) & self.given_up, "a request nobody waits for was answered"


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
