"""Client bodies: bytes in, vLLM's own request models out, refused before anything costs time.

Everything a client could use to reach past its contract (its own urgency, its own resume, KV transfer)
is refused by name here. Pure.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest

from superinfer_core.refusal import RefusalCode
from superinfer_core.words import shown
from superinfer_executor.engine.refusals import RequestRefusedError
from superinfer_executor.openai_paths import CHAT_PATH, COMPLETIONS_PATH
from superinfer_executor.plugin.request_slo import PREFIX, RESUME_TOKEN_IDS

MODELS: Final[Mapping[str, type[Any]]] = {
    CHAT_PATH: ChatCompletionRequest,
    COMPLETIONS_PATH: CompletionRequest,
}

RESERVED_ARGS: Final = frozenset({RESUME_TOKEN_IDS, "kv_transfer_params", "ec_transfer_params"})
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
# Without one of these no number of a body can leave 64 bits: most bodies need no second look.
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}|[eE]\+?[0-9]{3}")
_LONG_WORD_NUMBER: Final = re.compile(r"[+-]?[0-9]{19,}")
_INT64: Final = 2**63
# Documents of the client's own: what a schema says of numbers never travels as a number.
_FREE_FORM: Final = frozenset({"messages", "tools", "response_format", "structured_outputs", "metadata"})


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
    if _LONG_NUMBER.search(body):
        parameters = {name: value for name, value in document.items() if name not in _FREE_FORM}
        _refuse_beyond_64_bits(parameters, "")
    return document


def _refuse_beyond_64_bits(value: Any, place: str) -> None:
    """The models of vLLM take integers of any size where its wire to the engine does not, and infinity."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if _LONG_WORD_NUMBER.fullmatch(key):  # logit_bias has token ids for names
                raise _beyond_64_bits(place, key)
            _refuse_beyond_64_bits(inner, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _refuse_beyond_64_bits(inner, f"{place}[{number}]")
    elif isinstance(value, int | float) and not (-_INT64 <= value < _INT64 or _is_real(value)):
        raise _beyond_64_bits(place, value)


def _is_real(value: float) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _beyond_64_bits(place: str, value: object) -> RequestRefusedError:
    message = f"{place}: {shown(value)} is too large; write a number that fits 64 bits"
    return RequestRefusedError(RefusalCode.INVALID_REQUEST, message, place)


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
        if key.startswith(PREFIX) or key in RESERVED_ARGS:
            raise RequestRefusedError(
                RefusalCode.INVALID_REQUEST,
                f"vllm_xargs.{key} is reserved: a promise comes from a contract and the x-slo-* headers",
                f"vllm_xargs.{key}",
            )
