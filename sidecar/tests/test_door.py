"""The sidecar's door: its own ingress is served at once, everybody else by gRPC behind it."""

import asyncio
import contextlib
import socket
from pathlib import Path
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from superinfer_proto.door import Door
from superinfer_proto.duplex import DuplexCall, _call_head
from superinfer_proto.framing import HEADER_BYTES, PREFACE
from superinfer_proto.served_call import opens_call
from superinfer_proto.v1 import sidecar_pb2

SERVE = "/superinfer.v1.Sidecar/Serve"
CUT_OFF_S = 20.0


def opening(path: str = SERVE) -> bytes:
    """What the product's client writes first for a call to `path`."""
    written = bytearray()

    class Transport(asyncio.Transport):
        def write(self, data):
            written.extend(data)

    DuplexCall(_call_head(path, "localhost", secure=False), print, print).connection_made(Transport())
    return bytes(written)


@pytest.mark.parametrize(
    ("data", "recognised"),
    [
        pytest.param(opening(), True, id="our client"),
        pytest.param(opening() + b"and its hello", True, id="with more behind it"),
        pytest.param(opening("/superinfer.v1.Checkpoint/Fetch"), False, id="another method"),
        pytest.param(opening()[:30], False, id="not all of it yet"),
        pytest.param(PREFACE + b"\0" * HEADER_BYTES, False, id="another HTTP/2 client"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", False, id="no HTTP/2 at all"),
        pytest.param(b"", False, id="nothing"),
    ],
)
def test_only_our_own_clients_opening_is_recognised(data, recognised):
    assert opens_call(data, SERVE) is recognised


async def test_both_wires_and_health_share_one_address_and_one_desk(site, submit_of, body_of):
    await site.start_engine(step_ms=1)
    await site.start_sidecar()
    through_grpc = await site.connect()
    site.direct = True
    direct = await site.connect()
    channel = grpc.aio.insecure_channel(f"unix:{site.folder}/sidecar.sock")
    async with channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    for ingress, request_id in ((through_grpc, "one"), (direct, "two")):
        await ingress.send(submit_of(request_id, body=body_of(3)))
    for ingress, request_id in ((through_grpc, "one"), (direct, "two")):
        await ingress.final(request_id)
        assert ingress.tokens(request_id) == [0, 1, 2]
        assert list(ingress.outputs) == [request_id]


async def test_a_direct_stream_of_nonsense_ends_alone(site, submit_of, body_of, wait_until):
    await site.start_engine(step_ms=1)
    await site.start_sidecar()
    site.direct = True
    good, bad = await site.connect(), await site.connect()
    bad.call._call.send(b"\xff\xff\xff not a message")
    await wait_until(lambda: bad.ended, "its end")
    await good.send(submit_of("r", body=body_of(2)))
    await good.final("r")


async def test_bytes_that_are_no_http2_close_their_connection_alone(site, submit_of, body_of):
    await site.start_engine(step_ms=1)
    await site.start_sidecar()
    reader, writer = await asyncio.open_unix_connection(f"{site.folder}/sidecar.sock")
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    async with asyncio.timeout(CUT_OFF_S):
        await reader.read()  # gRPC's own farewell, then the end
    writer.close()
    site.direct = True
    ingress = await site.connect()
    await ingress.send(submit_of("r", body=body_of(2)))
    await ingress.final("r")


@pytest.fixture
async def wall(tmp_path):
    """A door before somebody who says a word to everybody, and remembers who is still there."""
    there, tasks = set(), set()

    async def greet(reader, writer):
        there.add(writer)
        tasks.add(asyncio.current_task())
        writer.write(b"hello")
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass
        there.discard(writer)
        writer.close()

    server = await asyncio.start_unix_server(greet, f"{tmp_path}/behind")
    door = Door(SERVE, print)
    door.behind = f"{tmp_path}/behind"
    await door.open(f"unix:{tmp_path}/door")
    yield SimpleNamespace(door=door, there=there, path=f"{tmp_path}/door")
    door.close()
    server.close()
    await asyncio.gather(*tasks)


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("half", [True, False], ids=["half closed", "closed"])
async def test_a_visitor_that_left_leaves_nothing_open(wall, wait_until, half):
    before = open_files()
    for _ in range(5):
        reader, writer = await asyncio.open_unix_connection(wall.path)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readexactly(5) == b"hello"
        if half:
            writer.write_eof()
            async with asyncio.timeout(CUT_OFF_S):
                assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    await wait_until(lambda: not wall.there, "the end of all behind the door")
    await wait_until(lambda: open_files() == before, "nothing left open")


async def test_a_visitor_that_says_nothing_is_shown_out(wall):
    wall.door.silent_s = 0.01
    reader, writer = await asyncio.open_unix_connection(wall.path)
    async with asyncio.timeout(CUT_OFF_S):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_a_visitor_that_has_spoken_may_be_silent(wall, wait_until):
    wall.door.silent_s = 0.01
    reader, writer = await asyncio.open_unix_connection(wall.path)
    writer.write(b"GET")
    assert await reader.readexactly(5) == b"hello"
    later = await asyncio.open_unix_connection(wall.path)
    with contextlib.suppress(ConnectionError):
        assert await later[0].read() == b"", "it came later, and is gone"
    writer.write(b"more")
    assert wall.there
    for one in (writer, later[1]):
        one.close()


async def test_a_visitor_whose_machine_is_gone_is_not_waited_for_a_quarter_of_an_hour():
    came = asyncio.get_running_loop().create_future()

    async def serve(call):
        came.set_result(call._transport.get_extra_info("socket"))

    door = Door(SERVE, serve)
    await door.open("127.0.0.1:0")
    _, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(opening())
    async with asyncio.timeout(CUT_OFF_S):
        visitor = await came
    assert 0 < visitor.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 20_000
    writer.close()
    door.close()


async def test_a_large_body_passes_the_door_on_either_way(site, submit_of, body_of):
    await site.start_engine(step_ms=1, max_model_len=1 << 21, kv_total_tokens=1 << 22)
    await site.start_sidecar()
    body = body_of(1, words="x" * (1 << 20))
    for site.direct in (False, True):
        ingress = await site.connect()
        request_id = f"large-{site.direct}"
        await ingress.send(submit_of(request_id, body=body))
        decision = await ingress.decision(request_id)
        assert decision.admitted, decision.refusal
        await ingress.final(request_id)


async def test_two_sidecars_on_one_address_are_told(site, tmp_path):
    await site.start_sidecar(listen="127.0.0.1:0")
    taken = site.sidecar.port
    first, site.sidecar = site.sidecar, None
    try:
        with pytest.raises(OSError, match="in use"):
            await site.start_sidecar(listen=f"127.0.0.1:{taken}")
    finally:
        site.sidecar = None
        await first.drain()


def test_what_the_door_serves_is_the_services_method():
    assert sidecar_pb2.DESCRIPTOR.services_by_name["Sidecar"].full_name in SERVE
