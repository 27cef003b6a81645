"""What an OpenAI client sees: answers, streams, models, and the headers on them."""

import httpx
import openai
import pytest


@pytest.fixture
def sdk(open_ingress):
    with openai.OpenAI(base_url=f"{open_ingress.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_chat_through_the_sdk(sdk):
    answer = sdk.chat.completions.create(
        model="stub", messages=[{"role": "user", "content": "hi"}], max_tokens=3
    )
    assert answer.choices[0].message.content == "tok0 tok1 tok2"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


def test_a_streamed_chat_through_the_sdk_with_usage(sdk):
    stream = sdk.chat.completions.create(
        model="stub",
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "tok0 tok1 tok2 tok3"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


def test_a_legacy_completion_and_several_choices(sdk):
    answer = sdk.completions.create(model="stub", prompt="once", max_tokens=2, n=2)
    assert [choice.text for choice in answer.choices] == ["tok0 tok1", "tok0 tok1"]


def test_a_stream_ends_with_done_and_says_who_served_it(open_ingress, kit):
    with open_ingress.client.stream(
        "POST",
        "/v1/chat/completions",
        json=kit.chat(2, stream=True),
        headers=kit.under("shop/gold", **{"x-request-id": "mine-1"}),
    ) as answer:
        body = answer.read()
    assert answer.status_code == 200
    assert body.endswith(b"data: [DONE]\n\n")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.headers["x-superinfer-contract"] == "shop/gold"
    assert answer.headers["x-superinfer-executor"].startswith("executor")
    assert answer.headers["x-superinfer-outcome"] == "as-asked"
    for name in ("predicted-ttft-ms", "predicted-e2e-ms", "slack-ms"):
        assert float(answer.headers[f"x-superinfer-{name}"]) > 0


def test_an_http_1_0_client_gets_the_stream_without_chunks(open_ingress, kit):
    import socket

    body = b'{"model":"stub","messages":[{"role":"user","content":"x"}],"max_tokens":2,"stream":true}'
    head = b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", open_ingress.port), timeout=10) as connection:
        connection.sendall(head + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"data: [DONE]\n\n")


def test_two_requests_on_one_connection_at_once_are_answered_in_order(open_ingress):
    import socket

    def request(tokens: int) -> bytes:
        body = b'{"model":"stub","prompt":"x","max_tokens":%d}' % tokens
        return b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body

    with socket.create_connection(("127.0.0.1", open_ingress.port), timeout=10) as connection:
        connection.sendall(request(9) + request(1))
        answer = b""
        while answer.count(b'"total_tokens"') < 2:
            answer += connection.recv(65536)
    assert answer.index(b"tok8") < answer.rindex(b"HTTP/1.1 200")


def test_models_say_that_a_stub_is_a_stub(open_ingress):
    listed = open_ingress.client.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["stub"]
    one = open_ingress.client.get("/v1/models/stub").json()
    assert one["superinfer"]["executors"][0]["engine"] == "Stub"
    missing = open_ingress.client.get("/v1/models/gpt-9")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_health_readiness_and_the_document_are_there(open_ingress):
    assert open_ingress.client.get("/healthz").status_code == 200
    assert open_ingress.client.get("/livez").status_code == 200
    assert open_ingress.client.get("/readyz").status_code == 200
    paths = open_ingress.client.get("/openapi.json").json()["paths"]
    assert "/v1/chat/completions" in paths


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/v1/chat/completions", 405, id="completions are posted"),
        pytest.param("DELETE", "/v1/models", 405, id="models are read"),
        pytest.param("PUT", "/v1/contracts", 405, id="contracts are posted"),
        pytest.param("GET", "/v2/anything", 404, id="nothing there"),
        pytest.param("GET", "/v1/contracts/shop/none", 404, id="no such contract"),
    ],
)
def test_what_is_not_there_is_an_openai_error(open_ingress, method, path, status):
    answer = open_ingress.client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    if status == 405:
        assert answer.headers["allow"]


def test_an_ingress_without_executors_is_alive_but_not_ready(rig, kit):
    nobody = kit.Executor("nobody", f"unix:{rig.directory}/nobody.grpc")
    ingress = rig.ingress([nobody], wait=False)
    assert ingress.client.get("/healthz").status_code == 200
    assert ingress.client.get("/readyz").status_code == 503
    answer = ingress.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_executors")
    assert int(answer.headers["retry-after"]) >= 1
    assert httpx.get(f"{ingress.url}/v1/models").json()["data"] == []
