"""The OpenAI Python SDK against a real vLLM engine, end to end: ingress, sidecar, executor, tiny model."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import pytest

pytestmark = pytest.mark.vllm

MODEL = "tiny"
HELLO = [{"role": "user", "content": "hello there"}]
VLLM_ARGS = (
    *("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "4", "--block-size", "32"),
    *("--max-num-batched-tokens", "256", "--enforce-eager"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    # A model of random weights would fill every answer with the whitespace JSON allows.
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)
ANSWER_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
    "required": ["answer"],
    "additionalProperties": False,
}

DECIDE = {"name": "decide", "parameters": ANSWER_SCHEMA}


@pytest.fixture(scope="module")
def site(tmp_path_factory, kit):
    """A real engine behind a sidecar behind an ingress that wants keys."""
    directory: Path = tmp_path_factory.mktemp("vllm")
    model = directory / "model"
    subprocess.run(
        [sys.executable, "-m", "superinfer_executor", "models", "tiny", "--out", str(model)],
        check=True,
        capture_output=True,
    )
    os.environ.update(OMP_NUM_THREADS="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind")
    with contextlib.closing(kit.Rig(directory)) as rig:
        socket, address = directory / "engine.sock", f"unix:{directory}/sidecar.grpc"
        ours = ("--socket", str(socket), "--model", str(model), "--served-model-name", MODEL)
        engine = rig._start("engine", "superinfer_executor", "serve", *ours, "--", *VLLM_ARGS)
        beside = ("--listen", address, "--engine-socket", str(socket), "--executor-name", "real")
        sidecar = rig._start("sidecar", "superinfer_sidecar", *beside, "--metrics-port", "-1")
        keys = directory / "keys.yaml"
        from superinfer_ingress.contracts.keys import add_key, new_key

        plain, entry = new_key("shop", namespaces=("shop",), secret="shop-keys", admin=True)
        add_key(keys, entry)
        own = {"apiKeySecretRef": {"name": "shop-keys"}}
        contracts = [
            kit.contract("chat", objectives={"TTFT": 60_000}, access=own),
            kit.contract("strict", objectives={"TTFT": 1}, access=own),
            kit.contract("few", objectives={"TTFT": 60_000}, quota={"concurrency": 1}, access=own),
        ]
        engine.wait_ready(240)
        executor = kit.Executor("real", address, engine, sidecar)
        settings = {"auth": "Required", "withoutContract": "Reject", "keys": str(keys)}
        yield rig.ingress([executor], contracts, **settings), plain


@pytest.fixture
def sdk(site):
    ingress, key = site
    with openai.OpenAI(
        base_url=f"{ingress.url}/v1",
        api_key=key,
        max_retries=0,
        timeout=60,
        default_headers={"x-slo-contract-id": "chat"},
    ) as client:
        yield client


def ask(sdk, tokens=8, contract="chat", temperature=0, **more):
    return sdk.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=tokens,
        temperature=temperature,
        extra_headers={"x-slo-contract-id": contract},
        **more,
    )


def test_the_model_is_listed_as_what_it_is(sdk):
    (model,) = sdk.models.list().data
    assert (model.id, model.superinfer["executors"][0]["engine"]) == (MODEL, "VLLM")


def test_chat_with_its_headers(sdk):
    raw = sdk.chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=6, extra_body={"ignore_eos": True}
    )
    answer = raw.parse()
    assert answer.usage.completion_tokens == 6
    assert answer.choices[0].finish_reason == "length"
    assert raw.headers["x-superinfer-contract"] == "shop/chat"
    assert float(raw.headers["x-superinfer-predicted-ttft-ms"]) > 0


def test_a_stream_says_what_the_plain_answer_says(sdk):
    plain = ask(sdk, 12).choices[0].message.content
    chunks = list(ask(sdk, 12, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == plain
    assert chunks[-1].usage.completion_tokens > 0


def test_two_choices(sdk):
    answer = ask(sdk, 5, n=2, temperature=1)
    assert [choice.index for choice in answer.choices] == [0, 1]
    streamed = {c.choices[0].index for c in ask(sdk, 5, n=2, temperature=1, stream=True) if c.choices}
    assert streamed == {0, 1}


def test_a_tool_call_plain_and_streamed(sdk):
    # Without `strict` vLLM promises arguments that are JSON, whatever JSON a model of random weights makes.
    tools = [{"type": "function", "function": DECIDE}]
    choice = {"type": "function", "function": {"name": "decide"}}
    call = ask(sdk, 200, tools=tools, tool_choice=choice).choices[0].message.tool_calls[0]
    json.loads(call.function.arguments)
    names, arguments = "", ""
    for chunk in ask(sdk, 200, tools=tools, tool_choice=choice, stream=True):
        for part in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            names += part.function.name or ""
            arguments += part.function.arguments or ""
    assert (call.function.name, names) == ("decide", "decide")
    assert json.loads(arguments) == json.loads(call.function.arguments)


def test_a_json_schema_is_kept(sdk):
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER_SCHEMA, "strict": True}}
    answer = ask(sdk, 200, response_format=wanted)
    assert json.loads(answer.choices[0].message.content)["answer"] in ("yes", "no")


def test_a_contract_that_cannot_be_kept_is_425_and_never_retried(site):
    ingress, key = site
    with openai.OpenAI(base_url=f"{ingress.url}/v1", api_key=key, max_retries=3) as client:
        before = ingress.metric("superinfer_refusals_total", reason="slo_infeasible")
        with pytest.raises(openai.APIStatusError) as caught:
            ask(client, contract="strict")
    assert (caught.value.status_code, caught.value.code) == (425, "slo_infeasible")
    assert caught.value.body["tightest_ms"] > 1
    assert ingress.metric("superinfer_refusals_total", reason="slo_infeasible") == before + 1


def test_a_full_quota_is_429_with_a_time_to_come_back(site, sdk, kit):
    ingress, _ = site
    stream = ask(sdk, 400, contract="few", stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    with pytest.raises(openai.RateLimitError) as caught:
        ask(sdk, contract="few")
    assert caught.value.code == "quota_exceeded"
    assert int(caught.value.response.headers["retry-after"]) >= 1
    stream.close()
    ingress.idle()


def test_an_unknown_key_is_401(site):
    ingress, _ = site
    with (
        openai.OpenAI(base_url=f"{ingress.url}/v1", api_key="sk-wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        ask(client)
    assert caught.value.code == "unauthorized"


def test_a_body_the_template_refuses_is_400(sdk):
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=100_000)
    assert caught.value.code in ("context_length", "invalid_request")


def test_a_stream_that_is_closed_is_cancelled_in_the_engine(site, sdk):
    ingress, key = site
    before = ingress.metric("superinfer_client_hang_ups_total")
    stream = ask(sdk, 450, stream=True, extra_body={"ignore_eos": True})
    for _, _chunk in zip(range(4), stream, strict=False):
        pass
    stream.close()
    ingress.idle()
    assert ingress.metric("superinfer_client_hang_ups_total") == before + 1
    attainment = ingress.attainment("shop/chat", headers={"authorization": f"Bearer {key}"})
    assert attainment["cancelled"] >= 1
    assert attainment["served"] == attainment["offered"]
    assert httpx.get(f"{ingress.url}/readyz").status_code == 200
