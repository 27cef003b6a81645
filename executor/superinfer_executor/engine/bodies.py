"""Client bodies: bytes in, vLLM's own request models out, refused before anything costs time.

Everything a client could use to reach past its contract (its own urgency, its own resume, KV transfer)
is refused by name here. Pure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest

from superinfer_core.refusal import RefusalCode
from superinfer_executor.engine.refusals import RequestRefusedError

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETIONS_PATH: Final = "/v1/completions"
MODELS: Final[Mapping[str, type[Any]]] = {
    CHAT_PATH: ChatCompletionRequest,
    COMPLETIONS_PATH: CompletionRequest,
}

RESERVED_ARGS_PREFIX: Final = "slo_"
RESERVED_ARGS: Final = frozenset({"resume_token_ids", "kv_transfer_params", "ec_transfer_params"})
REFUSED_FIELDS: Final[Mapping[str, str]] = {
    "use_beam_search": "beam search is not supported: its many engine requests escape the contract",
    "kv_transfer_params": "KV transfer is the executors' own business",
    "ec_transfer_params": "encoder-cache transfer is the executors' own business",
    "prompt_embeds": "prompt embeddings are not supported: send text or token ids",
}
# Room for everything of a body that is not prompt: tools, schema, parameters.
BODY_OVERHEAD_BYTES: Final = 1 << 20
# A character of a prompt in JSON: at most \uXXXX.
_BYTES_PER_CHARACTER: Final = 6


@dataclass(frozen=True, slots=True)
class Body:
    """A parsed body."""

    path: str
    request: Any

    @property
    def chat(self) -> bool:
        """Chat completion, else completion."""
        return self.path == CHAT_PATH


def body_limit_bytes(max_model_len: int, max_chars_per_token: int) -> int:
    """No body above this can hold a prompt that fits the context."""
    return BODY_OVERHEAD_BYTES + max_model_len * max(8, max_chars_per_token) * _BYTES_PER_CHARACTER


def parse_body(path: str, body: bytes, *, limit_bytes: int) -> Body:
    """The request model of a body; raises RequestRefusedError or pydantic's ValidationError."""
    model = MODELS.get(path)
    if model is None:
        raise RequestRefusedError(
            RefusalCode.INVALID_REQUEST, f"this engine serves {CHAT_PATH} and {COMPLETIONS_PATH}, not {path}"
        )
    if len(body) > limit_bytes:
        raise RequestRefusedError(
            RefusalCode.TOO_LARGE,
            f"the body has {len(body)} bytes; no prompt above {limit_bytes} bytes fits this model's context",
        )
    document = _load(body)
    _refuse_reserved(document)
    if path == CHAT_PATH and not isinstance(document.get("messages"), list):
        raise RequestRefusedError(RefusalCode.INVALID_REQUEST, "messages must be a list", "messages")
    return Body(path, model(**document))


def _load(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except RecursionError as error:
        raise RequestRefusedError(RefusalCode.INVALID_REQUEST, "the body is nested too deeply") from error
    except ValueError as error:
        # Covers JSON, UTF-8 and absurdly long numbers; the message names a place, never the content.
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise RequestRefusedError(RefusalCode.INVALID_REQUEST, f"the body is not JSON{place}") from error
    if not isinstance(document, dict):
        raise RequestRefusedError(RefusalCode.INVALID_REQUEST, "the body must be a JSON object")
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refuse_reserved(document: dict[str, Any]) -> None:
    for field, why in REFUSED_FIELDS.items():
        if document.get(field):
            raise RequestRefusedError(RefusalCode.INVALID_REQUEST, f"{field}: {why}", field)
    arguments = document.get("vllm_xargs")
    if not isinstance(arguments, dict):
        return
    for key in arguments:
        if key.startswith(RESERVED_ARGS_PREFIX) or key in RESERVED_ARGS:
            raise RequestRefusedError(
                RefusalCode.INVALID_REQUEST,
                f"vllm_xargs.{key} is reserved: a promise comes from a contract and the x-slo-* headers",
                f"vllm_xargs.{key}",
            )
