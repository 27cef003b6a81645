"""The load client's reader: the same answer however the bytes arrive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer.load.response import NotHttpError, Response


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


EVENTS = [
    b'data: {"choices":[{"text":"a"}]}\n\n',
    b'data: {"choices":[{"text":"b"}]}\n\n',
    b"data: [DONE]\n\n",
]
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
    b"X-Superinfer-Executor: executor-0\r\n\r\n" + b"".join(map(chunk, EVENTS)) + b"0\r\n\r\n"
)
SIZED = b'HTTP/1.1 425 Too Early\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"error":1}'


def read(data: bytes, cuts: list[int]) -> Response:
    response = Response()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for number, (start, end) in enumerate(pairwise(edges)):
        response.feed(data[start:end], float(number))
    return response


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_a_stream_is_the_same_for_every_cut(cuts: list[int]) -> None:
    response = read(STREAM, cuts)
    assert response.status == 200
    assert response.headers["x-superinfer-executor"] == "executor-0"
    assert len(response.event_ms) == 2
    assert response.event_ms == sorted(response.event_ms)
    assert response.first_event == b'{"choices":[{"text":"a"}]}'
    assert response.last_events[1] == b'{"choices":[{"text":"b"}]}'
    assert response.done
    assert response.over
    assert response.reusable


@given(st.lists(st.integers(0, len(SIZED)), max_size=10))
def test_a_refusal_is_the_same_for_every_cut(cuts: list[int]) -> None:
    response = read(SIZED, cuts)
    assert (response.status, bytes(response.body), response.over) == (425, b'{"error":1}', True)


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_response_or_an_error(data: bytes) -> None:
    response = Response()
    try:
        response.feed(data, 0.0)
    except NotHttpError:
        return
    assert response.over or response.status == 0 or response.headers is not None


def test_two_events_in_one_chunk_are_two_events() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    response = read(head + chunk(EVENTS[0] + EVENTS[1]) + chunk(EVENTS[2]) + b"0\r\n\r\n", [])
    assert len(response.event_ms) == 2


def test_a_stream_cut_short_is_not_over() -> None:
    response = read(STREAM[:-60], [])
    response.closed(9.0)
    assert not response.over
    assert not response.done


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    response = read(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{}", [])
    assert not response.over
    response.closed(9.0)
    assert response.over
    assert bytes(response.body) == b"{}"
    assert not response.reusable


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\n", id="a negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", id="a bad chunk size"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60_000, id="headers without end"),
    ],
)
def test_what_is_not_http_is_named_so(data: bytes) -> None:
    with pytest.raises(NotHttpError):
        Response().feed(data, 0.0)
