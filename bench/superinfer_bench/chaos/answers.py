"""What a client makes of an answer, and how it differs from the one nobody cut. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_SHIFTED = 256


@dataclass(slots=True)
class Choice:
    """One choice, put together from its chunks."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    tools: dict[int, dict[str, str]] = field(default_factory=dict)
    finish: list[str] = field(default_factory=list)
    roles: int = 0
    logprobs: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """One answer as its client has it.

    Attributes:
        heads: (id, created) of every event: one pair for one response.
        whole: it ended as answers end: [DONE], or a complete body.
        error, why: the code of an error and its message, or "".
        prompt_token_ids: as the engine rendered it; empty where it did not say.
    """

    choices: dict[int, Choice] = field(default_factory=dict)
    heads: set[tuple[str, int]] = field(default_factory=set)
    completion_tokens: int = 0
    whole: bool = False
    error: str = ""
    why: str = ""
    status: int = 0
    resumable: bool = True
    prompt_token_ids: list[int] = field(default_factory=list)

    def read_event(self, data: bytes) -> None:
        """One server-sent event."""
        if data == b"[DONE]":
            self.whole = True
            return
        document = json.loads(data)
        if "error" in document:
            self._fail(document["error"])
            return
        self._read(document, "delta")

    def _fail(self, error: Mapping[str, Any]) -> None:
        self.error, self.why = str(error.get("code")), str(error.get("message"))

    def read_body(self, data: bytes) -> None:
        """A whole answer."""
        document = json.loads(data)
        if "error" in document:
            self._fail(document["error"])
            return
        self._read(document, "message")
        self.whole = True

    def _read(self, document: Mapping[str, Any], part: str) -> None:
        self.heads.add((document["id"], document["created"]))
        usage = document.get("usage")
        if usage:
            self.completion_tokens = usage["completion_tokens"]
        self.prompt_token_ids = document.get("prompt_token_ids") or self.prompt_token_ids
        for each in document["choices"]:
            choice = self.choices.setdefault(each["index"], Choice())
            self.prompt_token_ids = each.get("prompt_token_ids") or self.prompt_token_ids
            choice.tokens += each.get("token_ids") or ()
            said = each.get(part) or {}
            choice.text += said.get("content") or each.get("text") or ""
            choice.roles += bool(said.get("role"))
            if each.get("finish_reason"):
                choice.finish.append(each["finish_reason"])
            for call in said.get("tool_calls") or ():
                tool = choice.tools.setdefault(call.get("index", 0), {"name": "", "arguments": ""})
                function = call.get("function") or {}
                tool["name"] += function.get("name") or ""
                tool["arguments"] += function.get("arguments") or ""
            logprobs = each.get("logprobs")
            if logprobs:
                choice.logprobs += logprobs.get("content") or logprobs.get("tokens") or ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Tokens of one answer against those of the uninterrupted one.

    Attributes:
        expected: tokens there should be.
        lost, doubled, wrong: what is not as it should be.
        at: (choice, number) of the first token that differs; None where none does.
        other: what differs besides tokens, in words; "" where nothing does.
    """

    expected: int
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    at: tuple[int, int] | None = None
    other: str = ""

    @property
    def same(self) -> bool:
        """Nothing differs."""
        return not (self.lost or self.doubled or self.wrong or self.other)


def compare(reference: Answer, got: Answer) -> Difference:
    """How `got` differs from `reference`, of the same request."""
    expected = lost = doubled = wrong = 0
    at = None
    for number, choice in sorted(reference.choices.items()):
        there = got.choices.get(number, Choice())
        expected += len(choice.tokens)
        first, *counts = _tokens(choice.tokens, there.tokens)
        lost, doubled, wrong = (a + b for a, b in zip((lost, doubled, wrong), counts, strict=True))
        if first is not None and at is None:
            at = (number, first)
    other = _other(reference, got) if at is None else ""
    return Difference(expected, lost, doubled, wrong, at, other)


def internal(got: Answer) -> str:
    """What is wrong with an answer on its own, whatever it says; "" where nothing is."""
    if len(got.heads) != 1:
        return f"{len(got.heads)} different ids or times of creation"
    tokens = sum(len(choice.tokens) for choice in got.choices.values())
    if tokens != got.completion_tokens:
        return f"{tokens} tokens came and usage says {got.completion_tokens}"
    for number, choice in got.choices.items():
        if len(choice.finish) != 1:
            return f"choice {number} ended {len(choice.finish)} times"
        if choice.roles > 1:
            return f"choice {number} said its role {choice.roles} times"
    return ""


def _tokens(expected: list[int], got: list[int]) -> tuple[int | None, int, int, int]:
    """(first difference, lost, doubled, wrong); a shift explains what follows it."""
    if expected == got:
        return None, 0, 0, 0
    first = next(
        (n for n, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    rest = got[first:]
    for shift in _shifts(len(expected)):
        if rest == expected[first + shift :]:
            return first, shift, 0, 0
        if shift <= first and rest == expected[first - shift :]:
            return first, 0, shift, 0
    return first, 0, 0, max(len(expected), len(got)) - first


def _shifts(tokens: int) -> Iterable[int]:
    return range(1, min(tokens, _MOST_SHIFTED) + 1)


def _other(reference: Answer, got: Answer) -> str:
    for number, choice in reference.choices.items():
        there = got.choices.get(number, Choice())
        for name in ("text", "tools", "finish", "roles"):
            if getattr(choice, name) != getattr(there, name):
                return f"{name} of choice {number}: {getattr(there, name)!r}, not {getattr(choice, name)!r}"
        if len(choice.logprobs) != len(there.logprobs):
            return f"{len(there.logprobs)} log probabilities of choice {number}, not {len(choice.logprobs)}"
    if reference.completion_tokens != got.completion_tokens:
        return f"usage says {got.completion_tokens}, not {reference.completion_tokens}"
    return internal(got)
