"""Clients that send garbage, send slowly, read slowly, or leave: each costs itself and nobody else."""

import contextlib
import json
import socket
import struct
import time

import pytest

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture(scope="session")
def bounded(shared, executor, kit):
    """An ingress with small bounds, so that tests need not wait long to meet them."""
    limits = {
        "bodyBytes": 200_000,
        "headerBytes": 8192,
        "headerRead": 0.6,
        "bodyRead": 0.6,
        "clientBufferBytes": 32_768,
        "bytesPerToken": 8,
    }
    return shared.ingress([executor], [kit.contract("gold")], limits=limits)


def connect(ingress, receive_bytes=None):
    connection = socket.socket()
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", ingress.port))
    return connection


def read_all(connection):
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def error_in(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def good(**more):
    messages = [{"role": "user", "content": "x"}]
    return {"model": "stub", "messages": messages, "max_tokens": 2, **more}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        pytest.param(b"", "not JSON", id="nothing"),
        pytest.param(b'{"model": "stub", "messages": [', "not JSON", id="truncated"),
        pytest.param(b"\xff\xfe\x00", "0xff", id="not UTF-8"),
        pytest.param(b'{"model": "stub", "x": "\xc3"}', "0xc3", id="not UTF-8 in a field nobody reads"),
        pytest.param(b'{"model": "stub", "temperature": NaN}', "not JSON", id="NaN"),
        pytest.param(b"[" * 100_000, "deeper", id="nested deep"),
        pytest.param(
            b'{"model":"stub","x":' + b'{"a":' * 500 + b"1" + b"}" * 501, "deeper", id="deep objects"
        ),
        pytest.param(b'"text"', "object", id="a string"),
        pytest.param(b"[]", "object", id="a list"),
        pytest.param(b"{}", "model: missing", id="no model"),
        pytest.param(json.dumps(good(model=7)).encode(), "model: 7", id="a number as model"),
        pytest.param(json.dumps(good(stream="yes")).encode(), "stream: 'yes'", id="text as stream"),
        pytest.param(json.dumps(good(n=0)).encode(), "n: 0", id="no choices"),
        pytest.param(json.dumps(good(n=10**400)).encode(), "n: an integer of", id="ten to the 400 choices"),
        pytest.param(json.dumps(good(max_tokens=-1)).encode(), "max_tokens: -1", id="negative max_tokens"),
        pytest.param(b'{"model":"stub","max_tokens":1e400}', "max_tokens", id="infinite max_tokens"),
        pytest.param(json.dumps(good(max_tokens=1.5)).encode(), "max_tokens: 1.5", id="half a token"),
        pytest.param(json.dumps({"model": "stub"}).encode(), "messages", id="no messages"),
        pytest.param(json.dumps(good(messages="hi")).encode(), "messages", id="text as messages"),
    ],
)
def test_a_body_that_cannot_be_served_is_named(bounded, body, names):
    answer = bounded.client.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] in ("invalid_request", "context_length")
    assert names in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "name",
    ["x-slo-ttft-ms", "x-slo-tpot-ms", "x-slo-max-latency-ms", "x-slo-deadline", "x-llm-d-slo-ttft-ms"],
)
@pytest.mark.parametrize("value", ["0", "-1", "NaN", "1" + "0" * 400, "soon", "300ms", "", "1e3", "inf"])
def test_a_header_that_cannot_be_a_promise_is_named_with_its_value(bounded, name, value):
    answer = bounded.client.post("/v1/chat/completions", json=good(), headers={name: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_slo", name)
    assert name in error["message"]


def test_a_header_sent_twice_is_not_decided_by_luck(bounded):
    answer = bounded.client.post(
        "/v1/chat/completions", json=good(), headers=[("x-slo-ttft-ms", "900"), ("x-slo-ttft-ms", "100")]
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_slo")


def test_a_body_above_the_bound_is_413_with_and_without_its_length(bounded):
    large = json.dumps(good(user="x" * 300_000)).encode()
    for content in (large, iter([large[:150_000], large[150_000:]])):
        answer = bounded.client.post("/v1/chat/completions", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_text_no_tokenizer_could_fit_is_refused_by_its_bytes(bounded):
    before = bounded.metric("superinfer_prompt_tokens_total")
    answer = bounded.client.post(
        "/v1/chat/completions", json=good(messages=[{"role": "user", "content": "x" * 100_000}])
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length")
    assert bounded.metric("superinfer_prompt_tokens_total") == before


def test_a_compressed_body_is_refused_by_name(bounded):
    answer = bounded.client.post(
        "/v1/chat/completions", content=b"\x1f\x8b", headers={"content-encoding": "gzip"}
    )
    assert answer.status_code == 400
    assert "content-encoding" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"x-big: " + b"a" * 10_000_000 + b"\r\n\r\n", id="ten megabytes in one header"),
        pytest.param(b"".join(b"x-%d: 1\r\n" % n for n in range(5000)) + b"\r\n", id="five thousand headers"),
        pytest.param(b"a" * 1_000_000, id="a header that never ends"),
    ],
)
def test_too_many_headers_are_431_and_cost_a_bounded_buffer(bounded, headers):
    with connect(bounded) as connection:
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # it need not take what it will not read
            connection.sendall(HEAD + headers)
        status, error = error_in(read_all(connection))
    assert (status, error["code"]) == (431, "too_large")


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", id="a TLS hello"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="an unknown version"),
        pytest.param(b"NOT HTTP AT ALL\r\n\r\n", id="not HTTP"),
        pytest.param(b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n", id="a path that is not text"),
        pytest.param(HEAD + b"content-length: -5\r\n\r\n", id="a negative length"),
        pytest.param(HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello", id="two lengths"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", id="a bad chunk"),
    ],
)
def test_what_is_not_http_gets_a_4xx_and_the_door(bounded, garbage):
    with connect(bounded) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)
    assert answer == b"" or 400 <= int(answer.split()[1]) < 500


def test_headers_sent_a_byte_at_a_time_run_out_of_time(bounded):
    with connect(bounded) as connection:
        started = time.monotonic()
        try:
            for byte in HEAD + b"x-slow: " + b"s" * 1000:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
        except (BrokenPipeError, ConnectionResetError):
            pass
        status, error = error_in(read_all(connection))
    assert (status, error["code"]) == (408, "invalid_request")
    assert time.monotonic() - started < 15


def test_a_body_sent_a_byte_at_a_time_runs_out_of_time(bounded):
    body = json.dumps(good(user="y" * 1000)).encode()
    with connect(bounded) as connection:
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body))
        answer = b""
        connection.settimeout(0.05)
        for byte in body:
            connection.sendall(bytes([byte]))
            try:
                answer += connection.recv(65536)
                break
            except TimeoutError:
                continue
        connection.settimeout(20)
        status, error = error_in(answer + read_all(connection))
    assert (status, error["code"]) == (400, "invalid_request")
    assert "within 0.6 s" in error["message"]
    bounded.idle()


def test_a_client_that_does_not_read_is_cancelled_not_buffered(bounded, kit):
    gone = bounded.metric("superinfer_client_hang_ups_total")
    slow = bounded.metric("superinfer_client_too_slow_total")
    delivered = bounded.metric("superinfer_output_tokens_total")
    body = json.dumps(good(stream=True, max_tokens=8000, ignore_eos=True)).encode()
    with connect(bounded, receive_bytes=4096) as connection:
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        kit.until(lambda: bounded.metric("superinfer_requests_in_flight") == 1, "the stream to run")
        bounded.idle()
    assert bounded.metric("superinfer_client_hang_ups_total") == gone + 1
    assert bounded.metric("superinfer_client_too_slow_total") == slow + 1
    assert bounded.metric("superinfer_output_tokens_total") - delivered < 8000


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_is_cancelled_to_the_engine_and_is_no_miss(rig, kit, stream):
    executor = rig.executor(step_ms=20)
    ingress = rig.ingress([executor], [kit.contract("left", availability="99")])
    body = json.dumps(good(stream=stream, max_tokens=4000, ignore_eos=True)).encode()
    connection = connect(ingress)
    head = HEAD + b"x-slo-contract-id: left\r\ncontent-length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)
    kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 0, "the first token")
    # A reset, as a killed client sends it.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    ingress.idle()
    # With one place in the batch, another request can only be served when the first is gone from the engine.
    attainment = ingress.attainment("shop/left")
    assert (attainment["cancelled"], attainment["offered"]) == (1, 0)
    assert ingress.chat(1).status_code == 200
    assert ingress.metric("superinfer_client_hang_ups_total") == 1
    record = ingress.records(1)[0]
    assert record["cancelled"] is True
    assert record["output_tokens"] < 4000


def test_a_client_that_leaves_frees_the_engines_only_place(rig, kit):
    executor = rig.executor(step_ms=20, max_num_seqs=1)
    ingress = rig.ingress([executor])
    body = json.dumps(good(stream=True, max_tokens=4000, ignore_eos=True)).encode()
    connection = connect(ingress)
    connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
    kit.until(lambda: ingress.metric("superinfer_ledger_tokens") > 0, "the first token")
    connection.close()
    assert ingress.chat(1).status_code == 200  # 4000 tokens at 20 ms would be 80 s


def test_bad_requests_leave_the_good_ones_alone(bounded, kit):
    with bounded.client.stream("POST", "/v1/chat/completions", json=kit.chat(300, stream=True)) as answer:
        for body in (b"{", b"\xff", b"[" * 5000):
            assert bounded.client.post("/v1/chat/completions", content=body).status_code == 400
        text = answer.read()
    assert text.count(b"data: ") == 302
    assert text.endswith(b"data: [DONE]\n\n")
