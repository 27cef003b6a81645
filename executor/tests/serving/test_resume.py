"""A request cut on one engine goes on, token for token, on another that never saw it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from superinfer_proto.v1 import slo_pb2

pytestmark = pytest.mark.vllm

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 999}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
HERMES_CALL = (
    r'Wait\. <tool_call>\n\{"name": "look_up", "arguments": '
    r'\{"name": "[a-z]{3,6}", "age": [1-9][0-9]\}\}\n</tool_call>'
)
MESSAGES = [{"role": "user", "content": "Tell me a story about a harbour, ガンダーラ and 🚀."}]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@dataclass(frozen=True)
class Case:
    name: str
    document: dict[str, Any]
    chat: bool = True
    cuts: Sequence[float] = (0.01, 0.5, 0.99)
    ignored: Sequence[str] = field(default_factory=tuple)


def chat(name: str, **document: Any) -> Case:
    return Case(name, {"messages": MESSAGES, "max_tokens": 24, "temperature": 0, **USAGE, **document})


def completion(name: str, **document: Any) -> Case:
    base = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, **USAGE}
    return Case(name, {**base, **document}, chat=False)


WHOLE = {"stream": False, "stream_options": None}
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 7}
CASES = [
    chat("greedy chat"),
    chat("chat that does not stream", **WHOLE),
    completion("greedy completion"),
    completion("completion that does not stream", **WHOLE),
    chat("seeded sampling", **SEEDED),
    chat("seeded sampling of two choices", n=2, **SEEDED),
    chat("two choices that do not stream", n=2, **SEEDED, **WHOLE),
    completion("two choices of different length", n=2, ignore_eos=True, stop=["a"], **SEEDED),
    chat(
        "every penalty at once", **SEEDED, presence_penalty=0.6, frequency_penalty=0.5, repetition_penalty=1.2
    ),
    completion("stop string spanning the cut", **SEEDED, stop=["e", "zz"], ignore_eos=True),
    completion(
        "stop string kept in the text",
        temperature=0.9,
        seed=11,
        min_tokens=8,
        stop=["e", "z"],
        include_stop_str_in_output=True,
    ),
    completion("least tokens before the end", min_tokens=20, **SEEDED),
    completion("echo", echo=True),
    chat("log probabilities", logprobs=True, top_logprobs=3),
    completion("log probabilities of a completion", logprobs=2, **SEEDED),
    chat(
        "JSON schema",
        **SEEDED,
        max_tokens=80,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
    ),
    chat("required tool", **{**SEEDED, "max_tokens": 80}, tools=[TOOL], tool_choice="required"),
    chat(
        "automatic tool",
        **{**SEEDED, "max_tokens": 120},
        tools=[TOOL],
        structured_outputs={"regex": HERMES_CALL},
    ),
    chat(
        "tools that do not stream",
        **{**SEEDED, "max_tokens": 80},
        tools=[TOOL],
        tool_choice="required",
        **WHOLE,
    ),
]


def comparable(document: Any) -> Any:
    """Ids of tool calls are random and only their header carries them."""
    if isinstance(document, dict):
        return {
            key: comparable(value)
            for key, value in document.items()
            if not (key == "id" and str(value).startswith(("call_", "chatcmpl-tool-")))
        }
    if isinstance(document, list):
        return [comparable(each) for each in document]
    return document


def told(body: bytes, events_of: Any) -> dict[str, Any]:
    """What a client makes of a stream."""
    choices: dict[int, dict[str, Any]] = {}
    found: dict[str, Any] = {"choices": choices, "heads": set(), "usage": None, "done": 0}
    for event in events_of(body):
        if event == "[DONE]":
            found["done"] += 1
            continue
        found["heads"].add((event["id"], event["created"], event["model"]))
        found["usage"] = event.get("usage") or found["usage"]
        for each in event["choices"]:
            choice = choices.setdefault(
                each["index"], {"role": [], "text": "", "tools": {}, "finish": [], "logprobs": []}
            )
            delta = each.get("delta", {})
            choice["role"] += [delta["role"]] if delta.get("role") else []
            choice["text"] += delta.get("content") or each.get("text") or ""
            if each.get("finish_reason"):
                choice["finish"].append((each["finish_reason"], each.get("stop_reason")))
            for call in delta.get("tool_calls") or ():
                tool = choice["tools"].setdefault(call["index"], {"name": "", "arguments": ""})
                tool["name"] += call["function"].get("name") or ""
                tool["arguments"] += call["function"].get("arguments") or ""
            if each.get("logprobs"):
                content = each["logprobs"].get("content") or each["logprobs"]
                choice["logprobs"] += content if isinstance(content, list) else [content]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_cut_request_ends_as_if_it_had_not_been_cut(case: Case, two_engines: Any, wire: Any) -> None:
    path = wire.CHAT if case.chat else wire.COMPLETIONS
    request_id = wire.new_id()
    document = {key: value for key, value in case.document.items() if value is not None}
    async with wire.connect(two_engines[0]) as first:
        whole = await first.ask_one(wire.submit(request_id, path, document))
    assert not whole.final.HasField("error"), whole.final.error
    spoken = [output for output in whole.outputs if output.token_ids]
    assert len(spoken) > 2
    async with wire.connect(two_engines[1]) as second:
        for attempt, share in enumerate(case.cuts, start=2):
            cut = min(len(spoken) - 1, max(1, round(share * len(spoken))))
            before = spoken[:cut]
            rest = await second.ask_one(
                wire.submit(request_id, path, document, attempt=attempt, delivered=wire.delivered_of(before))
            )
            assert not rest.final.HasField("error"), rest.final.error
            check(case, whole, before, rest, wire)


def check(case: Case, whole: Any, before: Any, rest: Any, wire: Any) -> None:
    delivered: dict[int, list[int]] = {}
    for output in before:
        delivered.setdefault(output.choice, []).extend(output.token_ids)
    for choice, tokens in whole.all_tokens().items():
        have = delivered.get(choice, [])
        assert have + rest.tokens(choice) == tokens, f"choice {choice} after {len(have)} tokens"
    for output in rest.outputs:
        if output.token_ids:
            assert output.first_token >= len(delivered.get(output.choice, [])), "delivered twice"
    whole_usage, rest_usage = whole.final.usage, rest.final.usage
    assert rest_usage.prompt_tokens == whole_usage.prompt_tokens
    assert rest_usage.completion_tokens == whole_usage.completion_tokens
    ends = {o.choice: (o.text_end, o.tool_end) for o in [*before, *rest.outputs] if o.token_ids}
    assert ends == {o.choice: (o.text_end, o.tool_end) for o in whole.outputs if o.token_ids}
    if case.document["stream"]:
        resumed = told(b"".join(output.chunk for output in before) + rest.body, wire.events_of)
        assert resumed == told(whole.body, wire.events_of)
    else:
        assert comparable(json.loads(rest.body)) == comparable(json.loads(whole.body))


ENDED = [
    pytest.param({"max_tokens": 6, "ignore_eos": True, **USAGE}, id="by its length"),
    pytest.param(
        {"max_tokens": 60, "min_tokens": 3, "stop": ["e", "o"], **SEEDED, **USAGE}, id="by a stop string"
    ),
    pytest.param({"max_tokens": 6, "ignore_eos": True, "stream": False}, id="without stream"),
]


@pytest.mark.parametrize("recorded", [True, False], ids=["end recorded", "end not recorded"])
@pytest.mark.parametrize("document", ENDED)
async def test_a_request_cut_after_its_last_token_only_ends(
    document: dict[str, Any], recorded: bool, two_engines: Any, wire: Any
) -> None:
    document = {"prompt": "Once upon a time", "temperature": 0, **document}
    request_id = wire.new_id()
    async with wire.connect(two_engines[0]) as first:
        whole = await first.ask_one(wire.submit(request_id, wire.COMPLETIONS, document))
    delivered = wire.delivered_of(whole.outputs)
    if not recorded:
        delivered[-1].finish_reason = delivered[-1].stop_reason = ""
    async with wire.connect(two_engines[1]) as second:
        rest = await second.ask_one(
            wire.submit(request_id, wire.COMPLETIONS, document, attempt=2, delivered=delivered)
        )
    (output,) = rest.outputs
    assert not output.HasField("error"), output.error
    assert not output.token_ids
    assert output.usage.completion_tokens == whole.final.usage.completion_tokens
    if document["stream"]:
        *usage, done = wire.events_of(output.chunk)
        assert done == "[DONE]"
        assert [event["choices"] for event in usage] == [[]]
        assert usage[0]["usage"] == told(whole.body, wire.events_of)["usage"]
    else:
        assert json.loads(output.chunk) == json.loads(whole.final.chunk)


async def test_sampling_without_a_seed_goes_on_validly(two_engines: Any, wire: Any) -> None:
    document = {
        "prompt": "Once upon a time",
        "max_tokens": 12,
        "ignore_eos": True,
        "temperature": 1.0,
        **USAGE,
    }
    async with wire.connect(two_engines[0]) as first:
        whole = await first.ask_one(wire.submit(wire.new_id(), wire.COMPLETIONS, document))
    before = whole.outputs[:5]
    async with wire.connect(two_engines[1]) as second:
        rest = await second.ask_one(
            wire.submit(
                wire.new_id(), wire.COMPLETIONS, document, delivered=wire.delivered_of(before), attempt=2
            )
        )
    assert [output.first_token for output in rest.outputs] == list(range(5, 12))
    assert rest.final.finish_reason == "length"


REFUSED = [
    pytest.param({"logprobs": 1}, [slo_pb2.TokenGroup(token_ids=[5])], "not_resumable", id="logprobs, whole"),
    pytest.param(
        {"prompt": ["a", "b"]}, [slo_pb2.TokenGroup(token_ids=[5])], "not_resumable", id="two prompts"
    ),
    pytest.param({}, [slo_pb2.TokenGroup(choice=3, token_ids=[5])], "invalid_request", id="no such choice"),
    pytest.param({}, [slo_pb2.TokenGroup(token_ids=[99_999])], "invalid_request", id="no such token"),
]


@pytest.mark.parametrize(("fields", "delivered", "code"), REFUSED)
async def test_what_cannot_go_on_exactly_is_refused(
    fields: dict[str, Any], delivered: list[slo_pb2.TokenGroup], code: str, two_engines: Any, wire: Any
) -> None:
    document = {"prompt": "Once", "max_tokens": 4, **fields}
    async with wire.connect(two_engines[1]) as sidecar:
        answer = await sidecar.ask_one(
            wire.submit(wire.new_id(), wire.COMPLETIONS, document, delivered=delivered, attempt=2)
        )
    assert answer.final.error.code == code, answer.final.error
    assert answer.final.error.message
