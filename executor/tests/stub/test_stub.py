"""The engine stub as a sidecar sees it: OpenAI answers, steps, limits, resumes, faults."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from superinfer_executor.stub.service import StubEngine, start_server
from superinfer_executor.stub.settings import StubSettings, parse_settings
from superinfer_proto.v1 import engine_pb2, engine_pb2_grpc, slo_pb2, work_pb2

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass
class Client:
    """One sidecar's side of Engine/Run and Engine/Render."""

    call: Any
    stub: Any
    info: engine_pb2.EngineInfo
    frames: list[work_pb2.Frame] = field(default_factory=list)

    async def submit(self, request_id: str, document: Any, *, path: str = CHAT, **more: Any) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        given = {"attempt": 1, "created_s": 7, **more}
        submit = work_pb2.Submit(request_id=request_id, path=path, body=body, **given)
        await self.call.write(engine_pb2.ToEngine(submits=[submit]))

    async def cancel(self, request_id: str, attempt: int = 1) -> None:
        cancel = work_pb2.Cancel(request_id=request_id, attempt=attempt)
        await self.call.write(engine_pb2.ToEngine(cancels=[cancel]))

    async def step(self) -> work_pb2.Frame:
        message = await self.call.read()
        self.frames.append(message.frame)
        return message.frame

    async def until_final(self, request_id: str) -> list[work_pb2.Output]:
        outputs: list[work_pb2.Output] = []
        while not (outputs and outputs[-1].final):
            frame = await self.step()
            outputs += [output for output in frame.outputs if output.request_id == request_id]
        return outputs

    async def render(self, document: Any, path: str = CHAT) -> engine_pb2.Rendered:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        call = self.stub.Render()
        await call.write(
            engine_pb2.RenderBatch(requests=[engine_pb2.RenderRequest(request_id="x", path=path, body=body)])
        )
        answer = await call.read()
        call.cancel()
        return answer.rendered[0]


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Any]:
    """Start an engine with these settings and connect to it."""
    opened: list[Any] = []

    async def start(**settings: Any) -> Client:
        given = StubSettings(socket=tmp_path / "engine.sock", **settings)
        server = await start_server(StubEngine(given), given)
        channel = grpc.aio.insecure_channel(f"unix:{given.socket}")
        stub = engine_pb2_grpc.EngineStub(channel)
        call = stub.Run()
        opened.append((call, channel, server))
        return Client(call, stub, (await call.read()).info)

    yield start
    for call, channel, server in opened:
        call.cancel()
        await channel.close()
        await server.stop(grace=0)


def ask(tokens: int = 3, words: str = "hello there", **more: Any) -> dict[str, Any]:
    return {"model": "stub", "messages": [{"role": "user", "content": words}], "max_tokens": tokens, **more}


def events(outputs: list[work_pb2.Output]) -> list[Any]:
    text = b"".join(output.chunk for output in outputs).decode()
    lines = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_it_announces_itself_as_a_stub(connect):
    client = await connect(served_model_name="m", max_num_seqs=5, max_model_len=99)
    assert client.info.type == engine_pb2.ENGINE_TYPE_STUB
    assert (client.info.model, client.info.max_num_seqs, client.info.max_model_len) == ("m", 5, 99)
    assert client.info.generation


async def test_a_chat_stream_in_openai_form(connect):
    client = await connect()
    await client.submit("r", ask(stream=True, stream_options={"include_usage": True}))
    outputs = await client.until_final("r")
    chunks = events(outputs)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks} == {
        ("chatcmpl-r", 7, "stub")
    }
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta["content"] for delta in deltas) == "tok0 tok1 tok2"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, None, "length"]
    assert chunks[-1]["usage"]["completion_tokens"] == 3
    assert outputs[-1].usage.completion_tokens == 3
    with_tokens = [output for output in outputs if output.token_ids]
    assert [output.first_token for output in with_tokens] == [0, 1, 2]
    assert [output.text_end for output in with_tokens] == [4, 9, 14]


async def test_one_frame_per_step(connect):
    client = await connect()
    for i in range(4):
        await client.submit(f"r{i}", ask(6, stream=True))
    for i in range(4):
        if not any(o.final and o.request_id == f"r{i}" for frame in client.frames for o in frame.outputs):
            await client.until_final(f"r{i}")
    for frame in client.frames:
        senders = [output.request_id for output in frame.outputs if output.token_ids]
        assert len(senders) == len(set(senders)), "two tokens of a request in one step"
    assert [frame.step for frame in client.frames] == sorted({frame.step for frame in client.frames})


async def test_a_chat_answer_that_does_not_stream(connect):
    client = await connect()
    await client.submit("r", ask(n=2))
    outputs = await client.until_final("r")
    body = json.loads(outputs[-1].chunk)
    assert body["object"] == "chat.completion"
    assert [choice["message"]["content"] for choice in body["choices"]] == ["tok0 tok1 tok2"] * 2
    assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}
    assert not any(output.chunk for output in outputs[:-1])
    assert sum(len(output.token_ids) for output in outputs) == 6


@pytest.mark.parametrize("stream", [True, False])
async def test_completions(connect, stream):
    client = await connect()
    document = {"model": "stub", "prompt": [1, 2, 3], "max_tokens": 2, "stream": stream}
    await client.submit("r", document, path=COMPLETIONS)
    outputs = await client.until_final("r")
    answers = events(outputs) if stream else [json.loads(outputs[-1].chunk)]
    assert "".join(answer["choices"][0]["text"] for answer in answers) == "tok0 tok1"
    assert {answer["object"] for answer in answers} == {"text_completion"}
    assert outputs[-1].usage.prompt_tokens == 3


async def test_generation_stops_by_itself_unless_told_to_ignore_it(connect):
    client = await connect(eos_after=4)
    await client.submit("stops", ask(10))
    assert json.loads((await client.until_final("stops"))[-1].chunk)["choices"][0]["finish_reason"] == "stop"
    await client.submit("goes on", ask(10, ignore_eos=True))
    outputs = await client.until_final("goes on")
    assert outputs[-1].usage.completion_tokens == 10
    assert json.loads(outputs[-1].chunk)["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("cut", [1, 4, 8])
async def test_a_resume_continues_exactly_where_it_was_cut(connect, cut):
    client = await connect()
    await client.submit("r", ask(8, stream=True))
    whole = await client.until_final("r")
    kept: list[work_pb2.Output] = []
    for output in whole:
        if sum(len(o.token_ids) for o in kept) >= cut:
            break
        kept.append(output)
    delivered = [
        slo_pb2.TokenGroup(first_token=o.first_token, token_ids=o.token_ids, finish_reason=o.finish_reason)
        for o in kept
        if o.token_ids
    ]
    await client.submit("r", ask(8, stream=True), attempt=2, delivered=delivered)
    rest = await client.until_final("r")
    assert b"".join(o.chunk for o in (*kept, *rest)) == b"".join(o.chunk for o in whole)
    assert rest[-1].usage == whole[-1].usage
    assert {output.attempt for output in rest} == {2}


async def test_prefill_is_chunked_and_reported(connect):
    client = await connect(max_num_batched_tokens=10)
    await client.submit("r", {"prompt": [1] * 25, "max_tokens": 1}, path=COMPLETIONS)
    await client.until_final("r")
    assert [frame.facts.prefill_tokens for frame in client.frames] == [10, 10, 5]
    progress = [frame.facts.progress[0].computed_tokens for frame in client.frames[:2]]
    assert progress == [10, 20]
    assert [frame.facts.prefill_context_tokens2 for frame in client.frames] == [50.0, 150.0, 112.5]


async def test_step_times_follow_the_settings(connect):
    client = await connect(step_ms=2.0, seq_ms=0.5, prefill_ms_per_token=0.1)
    await client.submit("r", {"prompt": [1] * 20, "max_tokens": 2}, path=COMPLETIONS)
    await client.until_final("r")
    prefill, decode = (frame.facts.step_ms for frame in client.frames)
    assert prefill >= 4.0
    assert decode >= 2.5


async def test_the_batch_is_bounded(connect):
    client = await connect(max_num_seqs=2)
    submits = [
        work_pb2.Submit(request_id=f"r{i}", attempt=1, path=CHAT, body=json.dumps(ask(5)).encode())
        for i in range(5)
    ]
    await client.call.write(engine_pb2.ToEngine(submits=submits))
    await client.until_final("r4")
    assert max(len({o.request_id for o in frame.outputs}) for frame in client.frames) == 2


async def test_a_cancelled_request_says_nothing_more(connect):
    client = await connect(step_ms=1.0)
    await client.submit("gone", ask(5000, ignore_eos=True))
    await client.submit("stays", ask(40))
    await client.step()
    await client.cancel("gone", attempt=0)
    await client.step()
    await client.cancel("gone")
    await client.until_final("stays")
    assert not any(output.request_id == "gone" for output in client.frames[-1].outputs)
    assert client.frames[-1].facts.running == 0


async def test_a_higher_attempt_replaces_the_lower_one(connect):
    client = await connect(step_ms=1.0)
    await client.submit("r", ask(5000, ignore_eos=True), attempt=1)
    await client.step()
    await client.submit("r", ask(4), attempt=3)
    await client.submit("r", ask(4), attempt=2)
    outputs = await client.until_final("r")
    assert outputs[-1].attempt == 3
    assert outputs[-1].usage.completion_tokens == 4


BAD = {
    "no JSON": (CHAT, b"{", "invalid_request"),
    "not UTF-8": (CHAT, b"\xff\xff", "invalid_request"),
    "deep": (CHAT, b"[" * 100_000, "invalid_request"),
    "another path": ("/v1/embeddings", ask(), "invalid_request"),
    "no messages": (CHAT, {"messages": []}, "invalid_request"),
    "a message that is a text": (CHAT, {"messages": ["hi"]}, "invalid_request"),
    "max_tokens of text": (CHAT, ask("many"), "invalid_request"),
    "max_tokens of true": (CHAT, ask(True), "invalid_request"),
    "n of zero": (CHAT, ask(n=0), "invalid_request"),
    "an empty prompt": (COMPLETIONS, {"prompt": ""}, "invalid_request"),
    "a prompt of floats": (COMPLETIONS, {"prompt": [1.5]}, "invalid_request"),
    "a prompt that is too long": (COMPLETIONS, {"prompt": [1] * 9000}, "context_length"),
    "prompt and answer too long": (COMPLETIONS, {"prompt": [1] * 8000, "max_tokens": 500}, "context_length"),
}


@pytest.mark.parametrize(("path", "document", "code"), BAD.values(), ids=BAD.keys())
async def test_bad_bodies_are_named_by_render_and_by_run(connect, path, document, code):
    client = await connect()
    rendered = await client.render(document, path)
    assert rendered.error.code == code
    assert rendered.error.message
    await client.submit("r", document, path=path)
    outputs = await client.until_final("r")
    assert outputs[-1].error.code == code


async def test_render_counts_and_is_a_function_of_the_text(connect):
    client = await connect()
    one = await client.render(ask(9, words="abcdefgh", n=2, stream=True))
    assert (one.total_prompt_tokens, one.max_tokens, one.choices, one.stream, one.resumable) == (
        6,
        9,
        2,
        True,
        True,
    )
    again = await client.render(ask(9, words="abcdefgh"))
    other = await client.render(ask(9, words="abcdefgX"))
    assert list(one.prompt_token_ids) == list(again.prompt_token_ids) != list(other.prompt_token_ids)


async def test_two_sidecars_do_not_see_each_other(connect):
    client = await connect(step_ms=1.0)
    second = client.stub.Run()
    other = Client(second, client.stub, (await second.read()).info)
    await client.submit("r", ask(5))
    await other.submit("r", ask(5))
    assert (await client.until_final("r"))[-1].usage.completion_tokens == 5
    assert (await other.until_final("r"))[-1].usage.completion_tokens == 5
    second.cancel()


async def test_it_hangs_when_told_to(connect):
    client = await connect(hang_after_steps=2)
    await client.submit("r", ask(10))
    await client.step()
    await client.step()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.step(), 0.1)


async def test_it_slows_down_when_told_to(connect):
    client = await connect(step_ms=2.0, slow_after_steps=2, slow_factor=10.0)
    await client.submit("r", ask(4))
    await client.until_final("r")
    times = [frame.facts.step_ms for frame in client.frames]
    assert min(times[2:]) >= 20.0


def start_process(tmp_path: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "superinfer_executor.stub", "--socket", str(tmp_path / "s"), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["event"] == "ready"
    return process


async def test_the_process_dies_when_told_to_and_imports_no_model_code(tmp_path):
    process = start_process(tmp_path, "--die-after-steps", "2")
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "libtorch" not in mapped
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
        call = engine_pb2_grpc.EngineStub(channel).Run()
        client = Client(call, None, (await call.read()).info)
        await client.submit("r", ask(10))
        with pytest.raises(grpc.RpcError):
            await client.until_final("r")
    assert await asyncio.to_thread(process.wait, 20) == -9
    process.stdout.close()


async def test_the_process_finishes_what_runs_on_sigterm(tmp_path):
    process = start_process(tmp_path, "--step-ms", "5")
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
        call = engine_pb2_grpc.EngineStub(channel).Run()
        client = Client(call, None, (await call.read()).info)
        await client.submit("r", ask(20))
        await client.step()
        process.terminate()
        assert (await client.until_final("r"))[-1].usage.completion_tokens == 20
    assert await asyncio.to_thread(process.wait, 20) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    "flags",
    [["--max-num-seqs", "0"], ["--step-ms", "-1"], ["--step-ms", "nan"], ["--no-such-flag"], []],
    ids=lambda flags: " ".join(flags) or "no socket",
)
def test_settings_nobody_could_use_end_with_status_2(flags, capsys):
    socket = ["--socket", "x"] if flags else []
    with pytest.raises(SystemExit) as ended:
        parse_settings([*socket, *flags])
    assert ended.value.code == 2
    assert capsys.readouterr().err
