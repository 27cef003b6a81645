"""Which requests can go on elsewhere token for token, and which cannot, by name.

docs/requests.md has the same table for users; a test compares them. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from superinfer_executor.engine.bodies import Body

RESUMING_SCHEDULER: Final = "superinfer"
"""The one that takes delivered tokens in as output; vLLM's own know of none."""
NOT_RESUMABLE: Final[Mapping[str, Callable[[Body], bool]]] = {
    "several prompts": lambda body: prompt_count(body) > 1,
    "prompt_logprobs": lambda body: body.request.prompt_logprobs is not None,
    "echo with logprobs": lambda body: bool(body.request.echo) and _wants_logprobs(body.request),
    "logprobs without stream": lambda body: not body.request.stream and _wants_logprobs(body.request),
    "media in messages": lambda body: body.chat and _has_media(body.request.messages),
    "repetition_detection": lambda body: body.request.repetition_detection is not None,
    "thinking_token_budget": lambda body: body.request.thinking_token_budget is not None,
}


def why_not_resumable(body: Body, scheduler: str) -> str | None:
    """The name of the first reason a request cannot be resumed exactly on such an engine, or None."""
    if scheduler != RESUMING_SCHEDULER:
        return f"scheduler {scheduler}"
    return next((name for name, applies in NOT_RESUMABLE.items() if applies(body)), None)


def prompt_count(body: Body) -> int:
    """How many prompts a body has."""
    if body.chat:
        return 1
    prompt = body.request.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return len(prompt)
    return 1


def _wants_logprobs(request: Any) -> bool:
    # Completions: 0 asks for the sampled token's; chat: a boolean.
    return request.logprobs is not None and request.logprobs is not False


def _has_media(messages: Any) -> bool:
    return any(
        isinstance(part, dict) and part.get("type", "text") not in {"text", "refusal"}
        for message in messages
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for part in message["content"]
    )
