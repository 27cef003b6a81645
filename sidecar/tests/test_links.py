"""What goes into one message of a stream, and whose output a frame's is."""

from superinfer_proto.v1 import engine_pb2, sidecar_pb2, work_pb2
from superinfer_sidecar.engine_link import EngineLink
from superinfer_sidecar.ingress_link import IngressLink
from superinfer_sidecar.relay import relay


def frame_of(*request_ids: str, step: int = 1) -> work_pb2.Frame:
    frame = work_pb2.Frame(step=step, facts=work_pb2.StepFacts(step_ms=2.0, running=len(request_ids)))
    for number, request_id in enumerate(request_ids):
        frame.outputs.add(request_id=request_id, attempt=1, token_ids=[number], chunk=b"data: x\n\n")
    return frame


def raw_of(frame: work_pb2.Frame) -> bytes:
    return engine_pb2.FromEngine(frame=frame).SerializeToString()


def taken(link: IngressLink) -> sidecar_pb2.FromSidecar:
    return sidecar_pb2.FromSidecar.FromString(link.take())


def test_everything_pending_goes_into_one_message_in_order():
    link = IngressLink(1 << 20)
    first, second = frame_of("a", "b", step=1), frame_of("a", step=2)
    link.info(sidecar_pb2.ExecutorInfo(executor="e"))
    link.decide(sidecar_pb2.Decision(request_id="a", attempt=1, admitted=True))
    relay(first, raw_of(first), [link, link])
    relay(second, raw_of(second), [link])
    for sequence in (1, 2):
        report = sidecar_pb2.FromSidecar(load=sidecar_pb2.LoadReport(sequence=sequence))
        link.load(report.SerializeToString())
    message = taken(link)
    assert [decision.request_id for decision in message.decisions] == ["a"]
    assert [(o.request_id, list(o.token_ids)) for o in message.frame.outputs] == [
        ("a", [0]),
        ("b", [1]),
        ("a", [0]),
    ]
    assert message.frame.step == 2
    assert message.load.sequence == 2
    assert message.info.executor == "e"
    assert link.take() == b""


def test_an_engines_frame_is_passed_on_untouched_when_one_ingress_owns_it_all():
    link = IngressLink(1 << 20)
    frame = frame_of("a", "b")
    relay(frame, raw_of(frame), [link, link])
    assert taken(link).frame == frame


def test_a_frame_is_split_by_owner_and_what_is_nobodys_is_dropped():
    one, two = IngressLink(1 << 20), IngressLink(1 << 20)
    frame = frame_of("a", "b", "c", "d")
    relay(frame, raw_of(frame), [one, None, two, one])
    assert [output.request_id for output in taken(one).frame.outputs] == ["a", "d"]
    message = taken(two)
    assert [output.request_id for output in message.frame.outputs] == ["c"]
    assert message.frame.facts == frame.facts


def test_more_unread_than_the_bound_ends_the_stream():
    link = IngressLink(1000)
    frame = frame_of("a")
    while not link.too_slow:
        relay(frame, raw_of(frame), [link])
    assert link.ending.is_set()
    assert len(link.take()) < 2000


def test_a_cancel_takes_back_what_was_not_sent_yet():
    link = EngineLink(engine_pb2.EngineInfo())
    link.submit(work_pb2.Submit(request_id="a", attempt=1))
    link.submit(work_pb2.Submit(request_id="b", attempt=1))
    link.cancel("a", 1)
    link.cancel("sent before", 2)
    message = engine_pb2.ToEngine.FromString(link.take())
    assert [submit.request_id for submit in message.submits] == ["b"]
    assert [(cancel.request_id, cancel.attempt) for cancel in message.cancels] == [("sent before", 2)]
    assert link.take() == b""


def test_large_bodies_are_spread_over_messages():
    link = EngineLink(engine_pb2.EngineInfo())
    body = b"x" * (3 << 20)
    for i in range(7):
        link.submit(work_pb2.Submit(request_id=f"r{i}", attempt=1, body=body))
        link.render(f"r{i}", "/p", body)
    for outbox, parse in ((link, engine_pb2.ToEngine), (link.renders, engine_pb2.RenderBatch)):
        seen = []
        while data := outbox.take():
            assert len(data) < 16 << 20
            message = parse.FromString(data)
            seen += [each.request_id for each in getattr(message, "submits", None) or message.requests]
        assert seen == [f"r{i}" for i in range(7)]


def test_bodies_to_render_travel_together():
    link = EngineLink(engine_pb2.EngineInfo())
    link.render("a", "/p", b"1")
    link.render("b", "/p", b"2")
    batch = engine_pb2.RenderBatch.FromString(link.renders.take())
    assert [(request.request_id, request.body) for request in batch.requests] == [("a", b"1"), ("b", b"2")]
    assert link.renders.take() == b""
