"""What an ingress hears of requests it sent again: which of them the engine has, and which were waiting."""

from desk_room import Room, gold

from superinfer_proto.v1 import sidecar_pb2
from superinfer_sidecar.ingress_link import IngressLink


def room_with_one_place() -> Room:
    room = Room()
    room.engine.max_num_seqs = 1
    room.desk.engine_up(room.engine)
    return room


def test_an_ingress_hears_when_the_engine_is_given_what_was_sent_again() -> None:
    room = room_with_one_place()
    promise = gold(ttft_target_ms=10_000)
    room.send("runs", promise, attempt=2)
    room.send("waits", promise, attempt=3)
    assert list(room.engine.holds) == ["runs"]
    assert room.ingress.begun_attempts == [("runs", 2)]
    room.step({"runs": 1}, final=("runs",))
    assert room.ingress.begun_attempts == [("runs", 2), ("waits", 3)]


def test_nothing_is_said_of_first_attempts() -> None:
    room = room_with_one_place()
    room.send("first", gold(ttft_target_ms=10_000))
    assert list(room.engine.holds) == ["first"]
    assert room.ingress.begun_attempts == []


def test_what_waited_when_the_engine_ended_was_never_begun() -> None:
    room = room_with_one_place()
    for request_id in ("runs", "waits"):
        room.send(request_id, gold(ttft_target_ms=10_000), attempt=2)
    room.desk.engine_lost()
    assert room.final_codes() == {"runs": "engine_failed", "waits": "engine_failed"}
    assert room.ingress.begun_attempts == [("runs", 2)]


def test_that_it_began_travels_no_later_than_that_it_failed() -> None:
    link = IngressLink(1 << 20)
    room = room_with_one_place()
    room.ingress = link
    room.send("runs", gold(ttft_target_ms=10_000), attempt=2)
    room.desk.engine_lost()
    message = sidecar_pb2.FromSidecar.FromString(link.take())
    assert [(each.request_id, each.attempt) for each in message.begun] == [("runs", 2)]
    assert [output.error.code for output in message.frame.outputs] == ["engine_failed"]
    assert link.take() == b""
