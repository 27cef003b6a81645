"""Engine/Run with a real engine: what a sidecar sees on the wire."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from superinfer_proto.v1 import engine_pb2, work_pb2

pytestmark = pytest.mark.vllm

HELLO = [{"role": "user", "content": "Hello"}]
LONG = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "stream": True}


async def test_the_first_message_describes_the_engine(engine: Any, wire: Any) -> None:
    async with wire.connect(engine) as sidecar:
        info = sidecar.info
    assert info.type == engine_pb2.ENGINE_TYPE_VLLM
    assert (info.model, info.max_model_len, info.max_num_seqs) == (wire.MODEL, 1024, 8)
    assert (info.block_size, info.max_num_batched_tokens, info.scheduler) == (32, 256, "superinfer")
    assert info.dtype == "float32"
    assert info.kv_total_tokens > 1024
    assert info.generation
    assert info.version == "vllm 0.32.0"


async def test_health_says_serving(engine: Any) -> None:
    async with grpc.aio.insecure_channel(f"unix:{engine.socket}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "superinfer.v1.Engine"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_streamed_chat_is_one_response_with_usage_and_done(engine: Any, wire: Any) -> None:
    document = {
        "messages": HELLO,
        "max_tokens": 6,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with wire.connect(engine) as sidecar:
        answer = await sidecar.ask_one(wire.submit(request_id := wire.new_id(), wire.CHAT, document))
    *events, done = wire.events_of(answer.body)
    assert done == "[DONE]"
    assert {(event["id"], event["created"]) for event in events} == {
        (f"chatcmpl-{request_id}", wire.CREATED_S)
    }
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-1]["usage"]["completion_tokens"] == 6 == len(answer.tokens())
    assert events[-1]["system_fingerprint"] == "superinfer"
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-1])
    assert answer.outputs[-1].text_end == len(text)
    assert [output.first_token for output in answer.outputs] == [0, 1, 2, 3, 4, 5]
    assert answer.final.finish_reason == "length"
    assert answer.final.usage.prompt_tokens == events[-1]["usage"]["prompt_tokens"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_an_answer_that_does_not_stream_still_tells_every_step(
    engine: Any, wire: Any, path: str
) -> None:
    prompt = {"messages": HELLO} if path == wire.CHAT else {"prompt": "Hello"}
    async with wire.connect(engine) as sidecar:
        answer = await sidecar.ask_one(
            wire.submit(wire.new_id(), path, {**prompt, "max_tokens": 5, "temperature": 0})
        )
    assert [len(output.token_ids) for output in answer.outputs] == [1] * 5
    assert all(not output.chunk for output in answer.outputs[:-1])
    body = json.loads(answer.final.chunk)
    assert body["usage"]["completion_tokens"] == 5
    assert body["created"] == wire.CREATED_S


async def test_every_frame_is_one_step_of_all_requests(engine: Any, wire: Any) -> None:
    tokens, streams = 20, 8
    ids = [wire.new_id() for _ in range(streams)]
    async with wire.connect(engine) as sidecar:
        answers = await sidecar.ask(
            *(wire.submit(each, wire.COMPLETIONS, {**LONG, "max_tokens": tokens}) for each in ids)
        )
        for frame in sidecar.frames:
            said = Counter((output.request_id, output.choice) for output in frame.outputs)
            assert set(said.values()) <= {1}
        with_output = [frame for frame in sidecar.frames if frame.outputs]
    assert all(answer.tokens() == answers[0].tokens() for answer in answers)
    # 160 outputs; streams that start within a few steps of each other share most of their frames.
    assert len(with_output) <= 3 * tokens


async def test_facts_tell_of_prefills_before_their_first_token(engine: Any, wire: Any) -> None:
    prompt = [random.randrange(5, 900) for _ in range(700)]
    async with wire.connect(engine) as sidecar:
        request_id = wire.new_id()
        answer = await sidecar.ask_one(
            wire.submit(request_id, wire.COMPLETIONS, {**LONG, "prompt": prompt, "max_tokens": 4})
        )
        facts = [frame.facts for frame in sidecar.frames if frame.HasField("facts")]
    assert answer.final.usage.prompt_tokens == 700
    assert sum(fact.prefill_tokens for fact in facts) == 700 - answer.final.usage.cached_tokens
    assert all(fact.step_ms > 0 for fact in facts)
    assert {each.request_id for fact in facts for each in fact.progress} <= {request_id}
    assert any(fact.progress for fact in facts), "a prompt of three chunks shows its progress"


async def test_several_prompts_are_answered_and_counted(engine: Any, wire: Any) -> None:
    document = {"prompt": ["Hello", "Once upon"], "n": 2, "seed": 3, "temperature": 0.8, "ignore_eos": True}
    streamed = {**document, "max_tokens": 4, "stream": True}
    async with wire.connect(engine) as sidecar:
        stream, whole = await sidecar.ask(
            wire.submit(wire.new_id(), wire.COMPLETIONS, streamed),
            wire.submit(wire.new_id(), wire.COMPLETIONS, {**document, "max_tokens": 4}),
        )
    for answer in (stream, whole):
        assert {choice: len(tokens) for choice, tokens in answer.all_tokens().items()} == dict.fromkeys(
            range(4), 4
        )
        assert answer.final.usage.completion_tokens == 16
    texts = dict.fromkeys(range(4), "")
    for event in wire.events_of(stream.body)[:-1]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {each["index"]: each["text"] for each in json.loads(whole.final.chunk)["choices"]}


async def test_a_higher_attempt_silences_the_lower(engine: Any, wire: Any) -> None:
    request_id = wire.new_id()
    slow = wire.submit(request_id, wire.COMPLETIONS, {**LONG, "max_tokens": 900})
    async with wire.connect(engine) as sidecar:
        await sidecar.send(slow)
        while (request_id, 1) not in sidecar.answers:
            await sidecar.frame()
        again = wire.submit(request_id, wire.COMPLETIONS, {**LONG, "max_tokens": 5}, attempt=2)
        (answer,) = await sidecar.ask(again)
        heard = len(sidecar.answers[request_id, 1].outputs)
        # Neither the cancelled attempt nor a late copy of it says anything any more.
        await sidecar.send(slow)
        await sidecar.ask(wire.submit(wire.new_id(), wire.COMPLETIONS, {**LONG, "max_tokens": 5}))
        assert len(sidecar.answers[request_id, 1].outputs) == heard
    assert len(answer.tokens()) == 5


async def test_a_cancelled_request_leaves_the_batch_within_a_step_or_two(engine: Any, wire: Any) -> None:
    stays, goes = wire.new_id(), wire.new_id()
    async with wire.connect(engine) as sidecar:
        await sidecar.send(
            *(wire.submit(each, wire.COMPLETIONS, {**LONG, "max_tokens": 200}) for each in (stays, goes))
        )
        while (goes, 1) not in sidecar.answers or (stays, 1) not in sidecar.answers:
            await sidecar.frame()
        await sidecar.send(cancels=[work_pb2.Cancel(request_id=goes, attempt=1)])
        (answer,) = await sidecar.until_final((stays, 1))
        gone = sidecar.answers[goes, 1]
        assert not gone.final.final
        assert len(gone.outputs) < len(answer.outputs) / 2
        last = [frame.facts.running for frame in sidecar.frames if frame.HasField("facts")][-5:]
        assert max(last) <= 1, "only the request that stays is in the batch"


async def test_what_a_broken_run_stream_asked_for_is_aborted(engine: Any, wire: Any) -> None:
    async with wire.connect(engine) as sidecar:
        await sidecar.send(wire.submit(lost := wire.new_id(), wire.COMPLETIONS, {**LONG, "max_tokens": 900}))
        while (lost, 1) not in sidecar.answers:
            await sidecar.frame()
    async with wire.connect(engine) as other:
        async with asyncio.timeout(30):
            while True:
                await other.ask(wire.submit(wire.new_id(), wire.COMPLETIONS, {**LONG, "max_tokens": 3}))
                running = [frame.facts.running for frame in other.frames if frame.HasField("facts")]
                if running and running[-1] == 0:
                    break


BAD = [
    ("no JSON", "/v1/completions", b"{", "invalid_request", ""),
    ("not UTF-8", "/v1/completions", b'{"prompt":"\xff\xfe"}', "invalid_request", ""),
    ("another model", "/v1/completions", {"model": "other", "prompt": "x"}, "model_not_found", "model"),
    ("too many tokens", "/v1/completions", {"prompt": [7] * 2000}, "context_length", ""),
    ("greedy choices", "/v1/completions", {"prompt": "x", "n": 2, "temperature": 0}, "invalid_request", ""),
    ("another path", "/v1/responses", {"input": "x"}, "invalid_request", ""),
    (
        "urgency of one's own",
        "/v1/completions",
        {"prompt": "x", "vllm_xargs": {"slo_ttft_ms": 1}},
        "invalid_request",
        "vllm_xargs.slo_ttft_ms",
    ),
]


@pytest.mark.parametrize(("path", "body", "code", "param"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
async def test_a_bad_body_is_one_final_error(
    engine: Any, wire: Any, path: str, body: Any, code: str, param: str
) -> None:
    async with wire.connect(engine) as sidecar:
        answer = await sidecar.ask_one(wire.submit(wire.new_id(), path, body))
    (output,) = answer.outputs
    assert output.final
    assert (output.error.code, bool(output.error.message)) == (code, True)
    assert not param or output.error.param == param
    assert not output.chunk


async def test_tools_stream_with_offsets_of_their_arguments(engine: Any, wire: Any) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 9}}, "required": ["age"]}
    document = {
        "messages": HELLO,
        "max_tokens": 60,
        "temperature": 0,
        "stream": True,
        "tools": [{"type": "function", "function": {"name": "look_up", "parameters": schema}}],
        "tool_choice": {"type": "function", "function": {"name": "look_up"}},
    }
    async with wire.connect(engine) as sidecar:
        answer = await sidecar.ask_one(wire.submit(wire.new_id(), wire.CHAT, document))
    calls = [
        call
        for event in wire.events_of(answer.body)[:-1]
        for call in event["choices"][0]["delta"].get("tool_calls") or ()
    ]
    arguments = "".join(call["function"].get("arguments") or "" for call in calls)
    assert calls[0]["function"]["name"] == "look_up"
    assert answer.final.tool_end == len(arguments) > 0


def test_the_engine_core_is_tied_to_its_parent(engine: Any) -> None:
    if not hasattr(engine, "core_pids"):
        pytest.skip("engines that are reused while developing")
    (core, *_) = [
        pid for pid in engine.core_pids() if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    session = int(Path(f"/proc/{core}/stat").read_text().rpartition(") ")[2].split()[3])
    assert session == core, "run_engine_core (engine/core_process.py) did not run in EngineCore"
