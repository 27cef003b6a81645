"""Engine/Render with a real engine: sizes of good bodies, errors of bad ones, nothing generated."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer_executor.engine.bodies import parse_body
from superinfer_executor.engine.resumable import why_not_resumable
from superinfer_proto.v1 import engine_pb2

pytestmark = pytest.mark.vllm

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
IMAGE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
}
BAD_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 5}}}
WORDS = [{"role": "user", "content": "word " * 1_000_000}]
DOCS = Path(__file__).parents[3] / "docs" / "requests.md"


def ask(request_id: str, path: str, body: Any) -> engine_pb2.RenderRequest:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return engine_pb2.RenderRequest(request_id=request_id, path=path, body=raw)


async def test_a_rendered_prompt_is_the_prompt_the_engine_would_use(engine: Any, wire: Any) -> None:
    (rendered,) = await wire.render(engine, ask("r", CHAT, HELLO))
    assert len(rendered.prompt_token_ids) == rendered.total_prompt_tokens > 5
    assert rendered.max_tokens == 1024 - rendered.total_prompt_tokens
    assert (rendered.choices, rendered.stream, rendered.resumable) == (1, False, True)
    document = {**HELLO, "max_tokens": 4, "temperature": 0}
    async with wire.connect(engine) as sidecar:
        plain, given_ids = await sidecar.ask(
            wire.submit(wire.new_id(), CHAT, document),
            wire.submit(wire.new_id(), CHAT, document, prompt_token_ids=rendered.prompt_token_ids),
        )
    assert plain.final.usage.prompt_tokens == rendered.total_prompt_tokens
    assert given_ids.final.usage.prompt_tokens == rendered.total_prompt_tokens
    assert plain.tokens() == given_ids.tokens()


SIZES = [
    ("defaults of a completion", COMPLETIONS, {"prompt": [5, 6, 7]}, (3, 16, 1, False)),
    ("stream and choices", CHAT, {**HELLO, "n": 3, "stream": True, "max_tokens": 9}, (None, 9, 3, True)),
    ("the newer name of max_tokens", CHAT, {**HELLO, "max_completion_tokens": 7}, (None, 7, 1, False)),
    ("several prompts", COMPLETIONS, {"prompt": [[5, 6], [7]], "n": 2, "max_tokens": 3}, (3, 3, 4, False)),
]


LEAST = [
    ("by default an answer may end at once", {}, 0),
    ("at least so many", {"min_tokens": 3}, 3),
    ("exactly max_tokens", {"ignore_eos": True}, 9),
    ("a stop string may still end it", {"ignore_eos": True, "stop": ["x"]}, 0),
]


async def test_no_answer_is_shorter_than_rendered(engine: Any, wire: Any) -> None:
    bodies = (ask(name, COMPLETIONS, {"prompt": [5, 6], "max_tokens": 9, **more}) for name, more, _ in LEAST)
    found = await wire.render(engine, *bodies)
    for (name, _, least), rendered in zip(LEAST, found, strict=True):
        assert rendered.min_tokens == least, name


async def test_sizes(engine: Any, wire: Any) -> None:
    found = await wire.render(engine, *(ask(name, path, body) for name, path, body, _ in SIZES))
    for (name, _, _, (tokens, max_tokens, choices, stream)), rendered in zip(SIZES, found, strict=True):
        assert not rendered.HasField("error"), f"{name}: {rendered.error}"
        assert tokens in (None, rendered.total_prompt_tokens), name
        assert (rendered.max_tokens, rendered.choices, rendered.stream) == (max_tokens, choices, stream), name


BAD = [
    ("empty", CHAT, b"", "invalid_request", ""),
    ("truncated JSON", CHAT, b'{"messages":[', "invalid_request", ""),
    ("not UTF-8", CHAT, b'{"messages":"\xff"}', "invalid_request", ""),
    ("a list", CHAT, b"[]", "invalid_request", ""),
    ("NaN", COMPLETIONS, b'{"prompt":"x","temperature":NaN}', "invalid_request", ""),
    ("10^400", COMPLETIONS, {"prompt": "x", "max_tokens": 10**400}, "invalid_request", "max_tokens"),
    ("64 bits and one", COMPLETIONS, {"prompt": "x", "top_k": 2**64}, "invalid_request", "top_k"),
    ("infinity, spelled out", CHAT, b'{"messages":[],"temperature":1e400}', "invalid_request", "temperature"),
    (
        "a token nobody counts to",
        CHAT,
        {**HELLO, "stop_token_ids": [7, 10**30]},
        "invalid_request",
        "stop_token_ids[1]",
    ),
    (
        "a name that is such a token",
        CHAT,
        {**HELLO, "logit_bias": {"1" + "0" * 30: 1}},
        "invalid_request",
        "logit_bias",
    ),
    ("too many digits", COMPLETIONS, b'{"prompt":"x","seed":1' + b"0" * 5000 + b"}", "invalid_request", ""),
    ("deep nesting", CHAT, b"[" * 100_000, "invalid_request", ""),
    ("no messages", CHAT, {}, "invalid_request", "messages"),
    ("messages of another kind", CHAT, {"messages": 5}, "invalid_request", "messages"),
    ("a role nobody knows", CHAT, {"messages": [{"content": "x"}]}, "invalid_request", ""),
    ("text as max_tokens", CHAT, {**HELLO, "max_tokens": "many"}, "invalid_request", "max_tokens"),
    ("negative max_tokens", CHAT, {**HELLO, "max_tokens": -1}, "invalid_request", "max_tokens"),
    ("temperature below zero", CHAT, {**HELLO, "temperature": -1}, "invalid_request", "temperature"),
    ("no choices", CHAT, {**HELLO, "n": 0}, "invalid_request", "n"),
    ("no prompt", COMPLETIONS, {}, "invalid_request", "prompt"),
    ("an empty prompt", COMPLETIONS, {"prompt": ""}, "invalid_request", "prompt"),
    ("a token nobody has", COMPLETIONS, {"prompt": [99_999]}, "invalid_request", ""),
    ("half a surrogate pair", COMPLETIONS, b'{"prompt":"\\ud800"}', "invalid_request", ""),
    ("usage without stream", CHAT, {**HELLO, "stream_options": {}, "stream": 3}, "invalid_request", "stream"),
    ("another model", CHAT, {**HELLO, "model": "gpt-9"}, "model_not_found", "model"),
    ("a prompt beyond the context", COMPLETIONS, {"prompt": [5] * 1025}, "context_length", ""),
    ("a prompt that leaves no room", COMPLETIONS, {"prompt": [5] * 1024}, "context_length", ""),
    ("more tokens than the context", CHAT, {**HELLO, "max_tokens": 5000}, "context_length", "max_tokens"),
    ("a million tokens", COMPLETIONS, {"prompt": [5] * 1_000_000}, "too_large", ""),
    ("a million words", CHAT, {"messages": WORDS}, "too_large", ""),
    (
        "beam search",
        COMPLETIONS,
        {"prompt": "x", "use_beam_search": True},
        "invalid_request",
        "use_beam_search",
    ),
    ("KV transfer", CHAT, {**HELLO, "kv_transfer_params": {"a": 1}}, "invalid_request", "kv_transfer_params"),
    (
        "a resume of one's own",
        CHAT,
        {**HELLO, "vllm_xargs": {"resume_token_ids": [1]}},
        "invalid_request",
        "vllm_xargs.resume_token_ids",
    ),
    ("an image for a text model", CHAT, {"messages": [IMAGE]}, "invalid_request", ""),
    ("a schema that is none", CHAT, {**HELLO, "response_format": BAD_SCHEMA}, "invalid_request", ""),
    ("a template of one's own", CHAT, {**HELLO, "chat_template": "{{ x }}"}, "invalid_request", ""),
    ("another path", "/v1/embeddings", {"input": "x"}, "invalid_request", ""),
]


async def test_bad_bodies_are_named_errors(engine: Any, wire: Any) -> None:
    found = await wire.render(engine, *(ask(name, path, body) for name, path, body, *_ in BAD))
    wrong = [
        f"{name}: {rendered}"
        for (name, _, _, code, param), rendered in zip(BAD, found, strict=True)
        if rendered.error.code != code
        or not rendered.error.message
        or (param and rendered.error.param != param)
        or rendered.prompt_token_ids
    ]
    assert not wrong, "\n".join(wrong)


async def test_a_long_prompt_is_refused_with_both_lengths(engine: Any, wire: Any) -> None:
    (rendered,) = await wire.render(engine, ask("r", COMPLETIONS, {"prompt": [5] * 1500}))
    assert "1024" in rendered.error.message
    assert "1500" in rendered.error.message


NOT_RESUMABLE = {
    "several prompts": (COMPLETIONS, {"prompt": ["a", "b"]}),
    "prompt_logprobs": (COMPLETIONS, {"prompt": "a", "prompt_logprobs": 1}),
    "echo with logprobs": (COMPLETIONS, {"prompt": "a", "echo": True, "logprobs": 1, "stream": True}),
    "logprobs without stream": (CHAT, {**HELLO, "logprobs": True}),
    "repetition_detection": (
        COMPLETIONS,
        {"prompt": "a", "repetition_detection": {"max_pattern_size": 4, "min_count": 3}},
    ),
}
# Refused by this model or without a server option, so there is nothing to resume.
REFUSED_HERE = {"media in messages", "thinking_token_budget"}


async def test_what_cannot_be_resumed_is_declared(engine: Any, wire: Any) -> None:
    found = await wire.render(engine, *(ask(name, *body) for name, body in NOT_RESUMABLE.items()))
    for rendered in found:
        assert not rendered.HasField("error"), f"{rendered.request_id}: {rendered.error}"
        assert not rendered.resumable, rendered.request_id


def test_the_documentation_lists_what_cannot_be_resumed() -> None:
    section = DOCS.read_text().partition("| not resumable |")[2].partition("\n\n")[0]
    names = set(re.findall(r"^\| ([a-z_ ]+) \|", section, re.MULTILINE))
    assert names == set(NOT_RESUMABLE) | REFUSED_HERE | {"scheduler"}


@pytest.mark.parametrize(
    ("scheduler", "why"), [("superinfer", None), ("fcfs", "fcfs"), ("priority", "priority")]
)
def test_vllms_own_schedulers_resume_nothing(scheduler: str, why: str | None) -> None:
    body = parse_body(COMPLETIONS, json.dumps({"model": "m", "prompt": "a"}).encode(), limit_bytes=1000)
    found = why_not_resumable(body, scheduler)
    assert found is None if why is None else found is not None and why in found


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    *("prompt", "messages", "n", "max_tokens", "temperature", "top_p", "stop", "seed", "stream", "logprobs"),
    *("tools", "tool_choice", "response_format", "logit_bias", "stream_options", "vllm_xargs", "cache_salt"),
)
BODIES = st.lists(
    st.tuples(
        st.sampled_from([CHAT, COMPLETIONS]),
        st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=5),
        st.booleans(),
    ),
    min_size=20,
    max_size=20,
)


@given(bodies=BODIES)
@settings(max_examples=12, deadline=None)
async def test_no_body_is_the_engines_failure(bodies: Any, engine: Any, wire: Any) -> None:
    requests = [
        ask(str(number), path, {**(HELLO if usable else {}), "prompt": "x", **fields})
        for number, (path, fields, usable) in enumerate(bodies)
    ]
    for rendered in await wire.render(engine, *requests):
        assert rendered.error.code != "engine_failed", rendered.error
