"""The executor stream's own HTTP/2 against a real gRPC server, and against bytes no server would send."""

import asyncio
import struct

import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_proto.duplex import DuplexCall, open_call
from superinfer_proto.framing import http2_frame

METHOD = "/superinfer.v1.Sidecar/Serve"


class Echo(grpc.GenericRpcHandler):
    """Sends every message back; ends the call on an empty one; fails it on b"fail"."""

    def service(self, details):
        assert details.method == METHOD
        return grpc.stream_stream_rpc_method_handler(self.talk)

    async def talk(self, messages, context):
        async for message in messages:
            if not message:
                return
            if message == b"fail":
                await context.abort(grpc.StatusCode.INTERNAL, "as asked")
            yield message


@pytest.fixture(params=["unix", "tcp"])
async def address(request, tmp_path):
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((Echo(),))
    where = f"unix:{tmp_path}/echo" if request.param == "unix" else "127.0.0.1:0"
    port = server.add_insecure_port(where)
    await server.start()
    yield where if request.param == "unix" else f"127.0.0.1:{port}"
    await server.stop(None)


class Heard:
    def __init__(self):
        self.messages = []
        self.closed = []
        self._news = asyncio.Event()

    def on_message(self, message):
        self.messages.append(message)
        self._news.set()

    def on_closed(self, why):
        self.closed.append(why)
        self._news.set()

    async def until(self, condition):
        async with asyncio.timeout(30):
            while not condition():
                self._news.clear()
                await self._news.wait()


async def call(address):
    heard = Heard()
    opened = await open_call(
        address, METHOD, tls=None, on_message=heard.on_message, on_closed=heard.on_closed
    )
    return opened, heard


async def test_messages_of_every_size_come_back_in_order(address):
    duplex, heard = await call(address)
    # Below and above a frame, the initial window, and the window that is given back in pieces.
    sent = [
        bytes([n % 251 + 1]) * size for n, size in enumerate((1, 9, 16_379, 16_384, 70_000, 3_900_000) * 3)
    ]
    for message in sent:
        duplex.send(message)
    await heard.until(lambda: len(heard.messages) == len(sent))
    assert heard.messages == sent
    duplex.abort()
    await heard.until(lambda: heard.closed)
    assert len(heard.closed) == 1


async def test_many_small_messages_do_not_run_out_of_window(address):
    duplex, heard = await call(address)
    messages = [b"%0120d" % number for number in range(4_000)]  # several windows of 64 KiB together
    for number, message in enumerate(messages):
        duplex.send(message)
        if number % 500 == 0:
            await asyncio.sleep(0)
    await heard.until(lambda: len(heard.messages) == len(messages))
    assert heard.messages == messages
    duplex.abort()


@pytest.mark.parametrize("last", [b"", b"fail"])
async def test_a_call_the_server_ends_is_closed_once(address, last):
    duplex, heard = await call(address)
    duplex.send(b"hello")
    duplex.send(last)
    await heard.until(lambda: heard.closed)
    assert heard.messages == [b"hello"]
    assert len(heard.closed) == 1
    duplex.send(b"into the void")


async def test_nobody_listening_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        await call(f"unix:{tmp_path}/nobody")


class Wire(asyncio.Transport):
    """A transport that only remembers."""

    def __init__(self):
        super().__init__()
        self.open = True
        self.unread = 0

    def write(self, data):
        assert isinstance(data, bytes)
        self.unread += len(data)

    def get_write_buffer_size(self):
        return self.unread

    def abort(self):
        self.open = False

    def is_closing(self):
        return not self.open


def http2(kind, payload, stream=0):
    return http2_frame(kind, 0, stream, payload)


PING, SETTINGS = 6, 4


@pytest.mark.parametrize(
    ("data", "goes_on"),
    [
        pytest.param(http2(PING, b"12345678") * 100, True, id="pings"),
        pytest.param(http2(PING, b"x" * 500_000), False, id="a ping of half a megabyte"),
        pytest.param(http2(SETTINGS, struct.pack(">HI", 5, 16_384)), True, id="the smallest frames"),
        pytest.param(http2(SETTINGS, struct.pack(">HI", 5, 1)), False, id="frames of a byte"),
        pytest.param(http2(SETTINGS, struct.pack(">HI", 5, 2**32 - 1)), False, id="frames without end"),
    ],
)
def test_a_peer_that_asks_for_what_the_protocol_forbids_is_cut_off(data, goes_on):
    duplex, wire = DuplexCall(b"", print, print), Wire()
    duplex.connection_made(wire)
    duplex.data_received(data)
    assert wire.open is goes_on


def test_a_peer_that_asks_on_and_on_and_reads_nothing_is_cut_off():
    duplex, wire = DuplexCall(b"", print, print), Wire()
    duplex.connection_made(wire)
    duplex.data_received(http2(PING, b"12345678") * 1000)
    assert wire.open
    wire.unread += 32 << 20
    duplex.data_received(http2(PING, b"12345678"))
    assert not wire.open


frames = st.builds(
    lambda kind, flags, stream, payload: (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    ),
    st.integers(0, 12),
    st.integers(0, 255),
    st.sampled_from([0, 1, 3, 2**32 - 1]),
    st.binary(max_size=40),
)


@settings(deadline=None)
@given(st.lists(frames | st.binary(max_size=30), max_size=12), st.integers(1, 7))
def test_no_bytes_of_a_peer_break_more_than_the_call(pieces, step):
    heard = []
    duplex = DuplexCall(b"", heard.append, lambda _why: None)
    wire = Wire()
    duplex.connection_made(wire)
    data = b"".join(pieces)
    for at in range(0, len(data), step):
        if wire.open:
            duplex.data_received(data[at : at + step])
    duplex.send(b"x" * 100)
    assert all(isinstance(message, bytes) for message in heard)
