"""What a link sends in one turn of the event loop: few messages, none longer than a sidecar takes."""

import asyncio
from types import SimpleNamespace

import pytest

from superinfer_ingress.config import ExecutorSettings
from superinfer_ingress.executors.link import ExecutorLink
from superinfer_proto.v1 import sidecar_pb2, work_pb2

MIB = 1 << 20
MOST_OF_A_SIDECAR = 64 * MIB


class Call:
    def __init__(self):
        self.sent = []

    def send(self, raw):
        assert len(raw) < MOST_OF_A_SIDECAR
        self.sent.append(sidecar_pb2.ToSidecar.FromString(raw))


async def link_to(call):
    link = ExecutorLink(ExecutorSettings(name="a", address="unix:/nowhere"), ingress_id="t", version="t")
    link._call = call
    return link


def submit(link, name, body):
    request = SimpleNamespace(request_id=name, attempt=2)
    link.submit(request, work_pb2.Submit(request_id=name, attempt=2, body=body), work_ms=1.0)
    return request


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        pytest.param([1000] * 200, 1, id="small ones together"),
        pytest.param([7 * MIB] * 12, 12, id="all long requests of a lost executor"),
        pytest.param([30 * MIB, 10, 5 * MIB, 10], 2, id="the longest body there may be"),
    ],
)
async def test_what_is_submitted_at_once_arrives_in_messages_a_sidecar_takes(sizes, messages):
    call = Call()
    link = await link_to(call)
    left = submit(link, "left", b"")
    link._submits.clear()
    for number, size in enumerate(sizes):
        submit(link, f"r{number}", bytes(size))
    link.cancel(left)
    await asyncio.sleep(0)
    assert len(call.sent) == messages
    arrived = [one.request_id for message in call.sent for one in message.submits]
    assert arrived == [f"r{number}" for number in range(len(sizes))]
    assert [one.request_id for one in call.sent[0].cancels] == ["left"]
    assert not any(message.cancels for message in call.sent[1:])
