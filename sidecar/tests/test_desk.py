"""The desk without a wire: spare places, displaced work, and that nothing is ever left behind.

Ports are fakes that remember; time is a number.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from superinfer_core.refusal import RefusalCode
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_proto.v1 import engine_pb2, sidecar_pb2, slo_pb2, work_pb2
from superinfer_sidecar.backpressure import tick_ms
from superinfer_sidecar.book import Book, Bounds
from superinfer_sidecar.desk import Desk
from superinfer_sidecar.planner import Planner
from superinfer_sidecar.settings import SidecarSettings
from superinfer_sidecar.tracked import Stage

CODES = {code.value for code in RefusalCode}


@dataclass(eq=False)
class FakeEngine:
    """Remembers what it was given; answers when it is told to."""

    max_num_seqs: int = 2
    renders: list[str] = field(default_factory=list)
    holds: dict[str, work_pb2.Submit] = field(default_factory=dict)
    cancelled: list[tuple[str, int]] = field(default_factory=list)

    @property
    def info(self) -> engine_pb2.EngineInfo:
        return engine_pb2.EngineInfo(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=512,
            kv_total_tokens=1 << 16,
            generation=str(id(self)),
        )

    def render(self, request_id: str, path: str, body: bytes) -> None:
        self.renders.append(request_id)

    def submit(self, submit: work_pb2.Submit) -> None:
        held = self.holds.get(submit.request_id)
        assert held is None or held.attempt < submit.attempt
        self.holds[submit.request_id] = submit

    def cancel(self, request_id: str, attempt: int) -> None:
        self.cancelled.append((request_id, attempt))
        self.holds.pop(request_id, None)


@dataclass(eq=False)
class FakeIngress:
    decisions: list[sidecar_pb2.Decision] = field(default_factory=list)
    outputs: list[work_pb2.Output] = field(default_factory=list)

    def decide(self, decision: sidecar_pb2.Decision) -> None:
        self.decisions.append(decision)

    def frame(self, frame: work_pb2.Frame) -> None:
        self.outputs.extend(frame.outputs)


@dataclass
class Room:
    """A desk, its clock and a fake engine."""

    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    max_queued: int = 50
    enforce: bool = True
    pass_through: bool = False
    learn_overhead: bool = True
    profile: Any = None
    now_ms: float = 1000.0

    def __post_init__(self) -> None:
        given = SidecarSettings(
            listen="unix:x",
            engine_socket=Path("x"),
            executor_name="x",
            enforce=self.enforce,
            pass_through=self.pass_through,
        )
        planner = Planner(self.policy, self.profile, learn_overhead=self.learn_overhead)
        self.desk = Desk(given, planner, Book(Bounds(self.max_queued, 10_000)), lambda: self.now_ms)
        self.engine = FakeEngine()
        self.ingress = FakeIngress()
        self.desk.engine_up(self.engine)

    def send(self, request_id: str, slo: slo_pb2.RequestSlo, *, attempt: int = 1, tokens: int = 50) -> None:
        body = b"x" * 10
        submit = work_pb2.Submit(request_id=request_id, attempt=attempt, path="/p", body=body, slo=slo)
        self.desk.submit([submit], self.ingress)
        self.render(tokens=tokens)

    def render(self, *, tokens: int = 50) -> None:
        ids, self.engine.renders = self.engine.renders, []
        self.desk.rendered(
            engine_pb2.Rendered(request_id=i, total_prompt_tokens=10, max_tokens=tokens, choices=1)
            for i in ids
        )

    def step(self, tokens: dict[str, int], *, final: tuple[str, ...] = (), **facts: Any) -> list[Any]:
        frame = work_pb2.Frame(facts=work_pb2.StepFacts(step_ms=5.0, decode_seqs=len(tokens), **facts))
        for request_id, count in tokens.items():
            submit = self.engine.holds.get(request_id)
            attempt = submit.attempt if submit else 1
            output = frame.outputs.add(request_id=request_id, attempt=attempt, token_ids=range(count))
            if request_id in final:
                output.final = True
                self.engine.holds.pop(request_id, None)
        owners = self.desk.frame(frame)
        self.desk.dispatch()
        return owners

    def final_codes(self) -> dict[str, str]:
        return {output.request_id: output.error.code for output in self.ingress.outputs if output.final}


def gold(**fields: Any) -> slo_pb2.RequestSlo:
    return slo_pb2.RequestSlo(
        tier=slo_pb2.TIER_GOLD, contract="t/g", contract_holds=True, budget_left=1, **fields
    )


def bronze(**fields: Any) -> slo_pb2.RequestSlo:
    return slo_pb2.RequestSlo(
        tier=slo_pb2.TIER_BRONZE, contract="t/b", contract_holds=True, budget_left=1, **fields
    )


def full_of_bronze(room: Room) -> None:
    for name in ("b0", "b1"):
        room.send(name, bronze(ttft_target_ms=60_000.0), tokens=500)
    room.step({"b0": 1, "b1": 1})


def test_a_spare_place_is_for_a_request_the_engine_would_displace_another_for(profile_of):
    room = Room(profile=profile_of(per_prefill_token_ms=0.1))
    full_of_bronze(room)
    room.send("bronze waits", bronze(ttft_target_ms=60_000.0))
    assert set(room.engine.holds) == {"b0", "b1"}
    room.now_ms += 10
    skip = work_pb2.Submit(
        request_id="gold",
        path="/p",
        body=b"x",
        slo=gold(ttft_target_ms=4.0),
        admission=work_pb2.ADMISSION_MODE_SKIP,
    )
    room.desk.submit([skip], room.ingress)
    room.render(tokens=5)
    assert set(room.engine.holds) == {"b0", "b1", "gold"}


def test_no_more_than_the_spare_places_are_used(profile_of):
    room = Room(profile=profile_of(per_prefill_token_ms=0.1), policy=SchedulingPolicy(window_extra=1))
    full_of_bronze(room)
    for i in range(3):
        submit = work_pb2.Submit(
            request_id=f"gold{i}",
            path="/p",
            body=b"x",
            slo=gold(ttft_target_ms=4.0),
            admission=work_pb2.ADMISSION_MODE_SKIP,
        )
        room.desk.submit([submit], room.ingress)
        room.render(tokens=5)
    assert len(room.engine.holds) == 3


def test_a_displaced_request_is_counted_and_waits_again(profile_of):
    room = Room(profile=profile_of())
    full_of_bronze(room)
    room.step({"b1": 1}, preemptions=[work_pb2.Preemption(request_id="b0", computed_tokens=11)])
    request = room.desk.book.by_id["b0"]
    assert request.preemptions == room.desk.counters.preemptions == 1
    assert request.state().prefill_left_tokens == 11
    room.step({"b0": 1, "b1": 1})
    assert request.state().prefill_left_tokens == 0


def test_progress_of_a_prefill_is_followed():
    room = Room()
    room.send("r", bronze())
    room.step({}, progress=[work_pb2.Progress(request_id="r", computed_tokens=4)])
    assert room.desk.book.by_id["r"].state().prefill_left_tokens == 6


def test_the_engine_is_told_how_long_ago_the_request_arrived():
    room = Room()
    full_of_bronze(room)
    room.send("r", bronze(elapsed_ms=40.0))
    room.now_ms += 60
    room.step({"b0": 1}, final=("b0",))
    assert room.engine.holds["r"].slo.elapsed_ms == 100.0


def test_bodies_of_running_requests_are_not_kept():
    room = Room()
    room.send("r", bronze())
    assert not room.desk.book.by_id["r"].submit.body
    assert room.engine.holds["r"].body


def test_output_of_an_attempt_that_is_over_is_nobodys():
    room = Room()
    room.send("r", bronze(), attempt=2)
    frame = work_pb2.Frame()
    frame.outputs.add(request_id="r", attempt=1, token_ids=[1])
    frame.outputs.add(request_id="r", attempt=2, token_ids=[1])
    frame.outputs.add(request_id="unknown", attempt=1, token_ids=[1])
    assert room.desk.frame(frame) == [None, room.ingress, None]
    assert room.desk.counters.stale_outputs == 2


def test_an_attempt_the_engine_has_seen_is_never_sent_again():
    room = Room()
    room.send("r", bronze(), attempt=1)
    room.desk.cancel([work_pb2.Cancel(request_id="r", attempt=1)], room.ingress)
    room.send("r", bronze(), attempt=1)
    assert room.ingress.decisions[-1].refusal.error.code == "invalid_request"
    assert "r" not in room.engine.holds
    room.send("r", bronze(), attempt=2)
    assert room.engine.holds["r"].attempt == 2


def test_clients_that_leave_together_cost_one_decision_and_no_place_in_between(monkeypatch):
    room = Room()
    full_of_bronze(room)
    for number in range(40):
        room.send(f"leaves{number}", bronze())
    room.send("stays", bronze())
    orders = []
    order = room.desk.planner.order
    monkeypatch.setattr(room.desk.planner, "order", lambda *given: orders.append(1) or order(*given))
    names = ["b0", "b1", *(f"leaves{number}" for number in range(40))]
    room.desk.cancel([work_pb2.Cancel(request_id=name, attempt=1) for name in names], room.ingress)
    assert set(room.engine.holds) == {"stays"}
    assert room.engine.cancelled == [("b0", 1), ("b1", 1)]
    assert len(orders) <= 1


def test_facts_that_make_no_sense_change_nothing(profile_of):
    room = Room(profile=profile_of())
    before = room.desk.planner.steps.model
    for step_ms in (float("nan"), float("inf"), -1.0, 0.0, 1e300):
        room.now_ms += 100
        room.desk.frame(work_pb2.Frame(facts=work_pb2.StepFacts(step_ms=step_ms, decode_seqs=1)))
    assert room.desk.planner.steps.model == before
    assert room.desk.planner.steps.ignored == 5


def test_steps_teach_the_model(profile_of):
    room = Room(profile=profile_of())
    for _ in range(600):
        room.now_ms += 20
        room.desk.frame(work_pb2.Frame(facts=work_pb2.StepFacts(step_ms=20.0, decode_seqs=1)))
    assert room.desk.planner.steps.model.step_ms(decode_seqs=1) == pytest.approx(20.0, rel=0.1)


def waiting_too_long(room: Room, **fields: Any) -> None:
    """A request that waits behind a full batch until its first token was due."""
    full_of_bronze(room)
    submit = work_pb2.Submit(
        request_id="late", path="/p", body=b"x", slo=bronze(ttft_target_ms=60_000.0), **fields
    )
    room.desk.submit([submit], room.ingress)
    room.render()
    assert room.ingress.decisions[-1].admitted
    room.now_ms += 60_001


@pytest.mark.parametrize("moment", ["tick", "turn"])
def test_work_that_waited_past_its_deadline_is_ended_as_expired(profile_of, moment):
    room = Room(profile=profile_of())
    waiting_too_long(room)
    if moment == "tick":
        room.desk.tick(50.0)
    else:
        room.step({"b0": 1}, final=("b0",))
    assert room.final_codes()["late"] == "deadline_expired"
    assert "late" not in room.engine.holds


SERVED_LATE = {
    "taken in whatever the prediction said": ({}, {"admission": work_pb2.ADMISSION_MODE_SKIP}),
    "begun elsewhere": (
        {},
        {
            "admission": work_pb2.ADMISSION_MODE_SKIP,
            "delivered": [slo_pb2.TokenGroup(token_ids=[1])],
        },
    ),
    "a sidecar that serves everyone": ({"enforce": False}, {}),
    "a policy that does not shed": ({"policy": SchedulingPolicy(shed_lost=False)}, {}),
}


@pytest.mark.parametrize(("settings", "fields"), SERVED_LATE.values(), ids=SERVED_LATE.keys())
def test_late_work_that_is_served_all_the_same(profile_of, settings, fields):
    room = Room(profile=profile_of(), **settings)
    waiting_too_long(room, **fields)
    room.desk.tick(50.0)
    room.step({"b0": 1}, final=("b0",))
    assert "late" in room.engine.holds
    assert "late" not in room.final_codes()


def first_tokens(room: Room, late_ms: float, count: int) -> list[float]:
    """Predicted TTFT of requests that come out `late_ms` later than they went in, while another one runs."""
    predicted = []
    for i in range(count):
        room.send(f"r{i}", gold(ttft_target_ms=5000.0), tokens=5)
        predicted.append(room.ingress.decisions[-1].prediction.ttft_ms)
        room.now_ms += late_ms
        room.step({f"r{i}": 1}, final=(f"r{i}",))
    return predicted


@pytest.mark.parametrize(("learn", "least_ms", "most_ms"), [(True, 75.0, 90.0), (False, 0.0, 20.0)])
def test_what_predictions_leave_out_is_learned(profile_of, learn, least_ms, most_ms):
    room = Room(profile=profile_of(), learn_overhead=learn)
    room.send("other", gold(), tokens=5000)
    room.step({"other": 1})
    predicted = first_tokens(room, 80.0, 40)
    assert predicted[0] < 20.0
    assert least_ms <= predicted[-1] <= most_ms


def test_a_decision_that_fails_costs_only_the_request_it_was_about(monkeypatch):
    room = Room()
    full_of_bronze(room)

    def fail(*_):
        raise ZeroDivisionError

    for name in ("admit_all", "order", "plan_step"):
        monkeypatch.setattr(f"superinfer_sidecar.planner.{name}", fail)
    room.send("unlucky", gold())
    assert room.ingress.decisions[-1].refusal.error.code == "engine_failed"
    assert set(room.desk.book.by_id) == {"b0", "b1"}
    assert room.step({"b0": 1, "b1": 1}) == [room.ingress, room.ingress]
    assert room.desk.planner.faults == 1


@pytest.mark.parametrize(("pressure", "period_ms"), [(0.0, 50.0), (0.7, 50.0), (0.71, 10.0), (9.0, 10.0)])
def test_the_tick_tightens_under_pressure(pressure, period_ms):
    assert tick_ms(pressure, 50.0) == period_ms


def test_pressure_rises_with_work_and_falls_with_time():
    room = Room()
    values = [room.desk.pressure.value]
    for i in range(40):
        room.send(f"r{i}", bronze(), tokens=400)
    room.desk.tick(50.0)
    values.append(room.desk.pressure.value)
    room.desk.tick(50.0)
    values.append(room.desk.pressure.value)
    room.desk.ingress_lost(room.ingress)
    room.desk.tick(50.0)
    values.append(room.desk.pressure.value)
    assert values[0] == 0 < values[2] < values[1]
    assert values[3] == 0


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
