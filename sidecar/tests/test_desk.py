"""The desk without a wire: spare places, displaced work, deadlines, what is learned."""

from typing import Any

import pytest
from desk_room import Room, bronze, full_of_bronze, gold

from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_proto.v1 import slo_pb2, work_pb2
from superinfer_sidecar.backpressure import tick_ms


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
