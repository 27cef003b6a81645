"""The mixed load: one request of every kind that can go on exactly, and one that only goes on validly."""

from dataclasses import dataclass
from typing import Any, Final

from superinfer_bench.chaos.site import MODEL

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"

_SCHEMA: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 999}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_TOOL: Final = {"type": "function", "function": {"name": "look_up", "parameters": _SCHEMA}}
_HERMES_CALL: Final = (
    r'Wait\. <tool_call>\n\{"name": "look_up", "arguments": '
    r'\{"name": "[a-z]{3,6}", "age": [1-9][0-9]\}\}\n</tool_call>'
)
_MULTI_BYTE: Final = "[🚀ガ漢é]{12,20}"
"""Every character is several tokens: nearly every cut is inside one."""
_MESSAGES: Final = [{"role": "user", "content": "Tell me a story about a harbour, ガンダーラ and 🚀."}]
_SEEDED: Final[dict[str, Any]] = {"temperature": 0.9, "top_p": 0.95, "seed": 7}
_JSON_SCHEMA: Final = {"type": "json_schema", "json_schema": {"name": "person", "schema": _SCHEMA}}


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request.

    Attributes:
        document: the body.
        exact: it is resumed token for token.
        greedy: the token with the greatest logit wins, so a tie can be told.
    """

    name: str
    path: str
    document: dict[str, Any]
    exact: bool = True
    greedy: bool = False

    @property
    def most_tokens(self) -> int:
        """What an answer can have, over all choices."""
        return int(self.document["max_tokens"]) * int(self.document.get("n", 1))


def _chat(name: str, *, exact: bool = True, greedy: bool = False, **more: Any) -> Case:
    base = {"messages": _MESSAGES, "max_tokens": 64, "temperature": 0, "ignore_eos": True}
    return Case(name, CHAT, _body({**base, **more}), exact, greedy)


def _completion(name: str, *, exact: bool = True, greedy: bool = False, **more: Any) -> Case:
    base = {"prompt": "Once upon a time 🚀", "max_tokens": 64, "temperature": 0, "ignore_eos": True}
    return Case(name, COMPLETIONS, _body({**base, **more}), exact, greedy)


def _body(more: dict[str, Any]) -> dict[str, Any]:
    base = {"model": MODEL, "stream": True, "return_token_ids": True}
    document = {**base, **more}
    if document["stream"]:
        document["stream_options"] = {"include_usage": True}
    return document


def _long_prompt(tokens: int) -> list[int]:
    """Ids that differ, so that no block is another's."""
    return [5 + (number * 7919 + number // 97) % 900 for number in range(tokens)]


CASES: Final = (
    _chat("greedy chat", greedy=True),
    _chat("greedy chat, whole", greedy=True, stream=False),
    _completion("greedy completion", greedy=True, max_tokens=160),
    _completion("greedy completion, whole", greedy=True, stream=False),
    _chat("seeded", **_SEEDED),
    _chat("seeded, two choices", n=2, **_SEEDED),
    _chat("seeded, two choices, whole", n=2, stream=False, **_SEEDED),
    _chat("penalties", **_SEEDED, presence_penalty=0.6, frequency_penalty=0.5, repetition_penalty=1.2),
    _completion("stop string", **{**_SEEDED, "seed": 11}, min_tokens=24, stop=["e", "zz"]),
    _completion("least tokens", **_SEEDED, min_tokens=40, ignore_eos=False),
    _chat("log probabilities", logprobs=True, top_logprobs=2, greedy=True),
    _completion("echo", echo=True, greedy=True),
    _chat("JSON schema", **{**_SEEDED, "max_tokens": 80}, ignore_eos=False, response_format=_JSON_SCHEMA),
    _chat(
        "required tool",
        **{**_SEEDED, "max_tokens": 80},
        ignore_eos=False,
        tools=[_TOOL],
        tool_choice="required",
    ),
    _chat(
        "automatic tool",
        **{**_SEEDED, "max_tokens": 120},
        ignore_eos=False,
        tools=[_TOOL],
        structured_outputs={"regex": _HERMES_CALL},
    ),
    _chat(
        "multi-byte characters",
        **{**_SEEDED, "max_tokens": 80},
        ignore_eos=False,
        structured_outputs={"regex": _MULTI_BYTE},
    ),
    _completion("long context", greedy=True, prompt=_long_prompt(1200), max_tokens=48),
    _completion("one token", greedy=True, max_tokens=1),
    _chat("unseeded", exact=False, temperature=1.0),
)


def named(name: str) -> Case:
    """The case of that name."""
    return next(case for case in CASES if case.name == name)
