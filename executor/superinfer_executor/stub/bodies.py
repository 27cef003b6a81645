"""Reads OpenAI request bodies the way the stub needs them: sizes and options, and no tokenizer.

A token of text is four bytes of it; its id is those four bytes, so equal text gives equal ids.
"""

import json
from array import array
from dataclasses import dataclass
from typing import Any

from superinfer_core.refusal import RefusalCode
from superinfer_executor.openai_paths import CHAT_PATH, COMPLETIONS_PATH

_COMPLETIONS_DEFAULT_MAX_TOKENS = 16
_TEMPLATE_TOKENS_PER_MESSAGE = 4
_MOST_CHOICES = 128


class BadBodyError(Exception):
    """The body cannot be served; carries what the client gets."""

    def __init__(
        self, message: str, param: str = "", code: RefusalCode = RefusalCode.INVALID_REQUEST
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


@dataclass(frozen=True, slots=True)
class StubBody:
    """One request body, understood."""

    chat: bool
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    choices: int
    stream: bool
    include_usage: bool
    ignore_eos: bool


def read_body(path: str, body: bytes, *, max_model_len: int) -> StubBody:
    """Understand one body or raise BadBodyError with the field, the value and the fix."""
    if path not in (CHAT_PATH, COMPLETIONS_PATH):
        raise BadBodyError(f"unknown path {path!r}; use {CHAT_PATH} or {COMPLETIONS_PATH}", "path")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadBodyError(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadBodyError("the body must be a JSON object")
    chat = path == CHAT_PATH
    prompt = _chat_tokens(document) if chat else _prompt_tokens(document)
    max_tokens = _max_tokens(document, chat=chat, room=max_model_len - len(prompt))
    if len(prompt) + max_tokens > max_model_len or not prompt:
        raise BadBodyError(
            f"the prompt has {len(prompt)} tokens and max_tokens is {max_tokens};"
            f" together they must be between 2 and {max_model_len}",
            "messages" if chat else "prompt",
            RefusalCode.CONTEXT_LENGTH if prompt else RefusalCode.INVALID_REQUEST,
        )
    options = document.get("stream_options")
    return StubBody(
        chat=chat,
        prompt_token_ids=prompt,
        max_tokens=max_tokens,
        choices=_count(document, "n", 1, most=_MOST_CHOICES),
        stream=document.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        ignore_eos=document.get("ignore_eos") is True,
    )


def _count(document: dict[str, Any], name: str, default: int, *, most: int) -> int:
    value = document.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadBodyError(f"{name} must be a whole number from 1 to {most}, got {str(value)[:40]!r}", name)
    return value


def _max_tokens(document: dict[str, Any], *, chat: bool, room: int) -> int:
    name = "max_tokens"
    if chat and document.get("max_completion_tokens") is not None:
        name = "max_completion_tokens"
    default = max(1, room) if chat else _COMPLETIONS_DEFAULT_MAX_TOKENS
    return _count(document, name, default, most=1 << 31)


def _text_tokens(text: str) -> tuple[int, ...]:
    data = text.encode("utf-8", "surrogatepass")
    return tuple(array("I", data + b" " * (-len(data) % 4)))


def _chat_tokens(document: dict[str, Any]) -> tuple[int, ...]:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadBodyError("messages must be a list with at least one message", "messages")
    tokens: list[int] = []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadBodyError(f"messages[{number}] must be an object with a role", "messages")
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = json.dumps(content)
        tokens.extend(range(_TEMPLATE_TOKENS_PER_MESSAGE))
        tokens.extend(_text_tokens(content))
    return tuple(tokens)


def _prompt_tokens(document: dict[str, Any]) -> tuple[int, ...]:
    prompt = document.get("prompt")
    if isinstance(prompt, str):
        return _text_tokens(prompt)
    if (
        isinstance(prompt, list)
        and prompt
        and all(type(item) is int and 0 <= item < 1 << 31 for item in prompt)
    ):
        return tuple(prompt)
    raise BadBodyError("prompt must be a text or a list of token ids (the stub takes one prompt)", "prompt")
