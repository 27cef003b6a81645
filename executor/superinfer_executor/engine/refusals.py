"""What vLLM's errors are called on our wire: the closed list of core, OpenAI's form, no prompt text."""

import logging
import re
from typing import Any, Final

from pydantic import ValidationError
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.exceptions import VLLMClientError, VLLMNotFoundError
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from superinfer_core.refusal import RefusalCode
from superinfer_proto.v1 import slo_pb2

log = logging.getLogger(__name__)

_TOO_LONG_SIGNS: Final = ("context length", "maximum model length", "max_model_len")
# What bad bodies raise in template, tokenizer and parameter code that has no vLLM error class of its own.
_CLIENT_ERRORS: Final = (ValueError, TypeError, OverflowError, NotImplementedError, RecursionError)
_LIMITS: Final = frozenset({"too_long", "too_short", "string_too_long"})
_TYPE_NAMES: Final = frozenset({"str", "int", "float", "bool", "list", "dict"})
_MESSAGE_LIMIT_CHARS: Final = 1000
_LEADING_NAME: Final = re.compile(r"`?([a-z_]+)`?(?: must| cannot| is|=|\[)")


class RequestRefusedError(Exception):
    """A request this engine does not serve, and why, in the words of the client."""

    def __init__(self, code: RefusalCode, message: str, param: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param

    @property
    def as_proto(self) -> slo_pb2.Error:
        """The same on the wire."""
        return slo_pb2.Error(code=self.code.value, message=self.message, param=self.param)


def refusal_of(error: BaseException) -> RequestRefusedError:
    """The refusal for anything that request handling raises."""
    if isinstance(error, RequestRefusedError):
        return error
    if isinstance(error, ValidationError):
        return _of_validation(error)
    if isinstance(error, VLLMNotFoundError):
        return RequestRefusedError(RefusalCode.MODEL_NOT_FOUND, str(error), "model")
    if isinstance(error, VLLMClientError):
        message = str(error.args[0]) if error.args else str(error)
        return _invalid(message, getattr(error, "parameter", None))
    if isinstance(error, EngineDeadError | EngineGenerateError):
        return RequestRefusedError(RefusalCode.ENGINE_FAILED, "the engine failed while serving the request")
    if isinstance(error, ValueError) and "is not a multimodal model" in str(error):
        return _invalid(f"messages: {error}; send text only", "messages")
    if isinstance(error, _CLIENT_ERRORS) or _is_template_error(error):
        return _invalid(f"{type(error).__name__}: {error}", None)
    log.error("a request failed with %s", type(error).__name__, exc_info=error)
    return RequestRefusedError(RefusalCode.ENGINE_FAILED, f"the engine failed: {type(error).__name__}")


def refusal_of_response(response: Any) -> RequestRefusedError:
    """The refusal for an ErrorResponse that vLLM's serving layer returned instead of an answer."""
    info = response.error
    return refusal_of_info(info.message, int(info.code), info.param)


def refusal_of_info(message: str, status: int, param: str | None) -> RequestRefusedError:
    """The refusal for the parts of an OpenAI error object that vLLM made."""
    if status == 404:
        return RequestRefusedError(RefusalCode.MODEL_NOT_FOUND, message, param or "model")
    if status >= 500 and status != 501:
        return RequestRefusedError(RefusalCode.ENGINE_FAILED, message, param or "")
    return _invalid(message, param)


def _invalid(message: str, param: str | None) -> RequestRefusedError:
    too_long = any(sign in message for sign in _TOO_LONG_SIGNS)
    code = RefusalCode.CONTEXT_LENGTH if too_long else RefusalCode.INVALID_REQUEST
    return RequestRefusedError(code, message[:_MESSAGE_LIMIT_CHARS], param or _named_field(message))


def _named_field(message: str) -> str:
    """The parameter a message is about where vLLM names it in words only ("n must be at least 1")."""
    found = _LEADING_NAME.match(message)
    name = found.group(1) if found else ""
    known = name in ChatCompletionRequest.model_fields or name in CompletionRequest.model_fields
    return name if known else ""


def _of_validation(error: ValidationError) -> RequestRefusedError:
    """The first problem pydantic found, without the input it found it in."""
    found = error.errors(include_url=False, include_input=False)
    # A field of several types has a problem for each: a limit says more than that it could have been text.
    same = [problem for problem in found if problem["loc"][:1] == found[0]["loc"][:1]]
    first = next((problem for problem in same if problem["type"] in _LIMITS), found[0])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, VLLMClientError):
        return refusal_of(cause)
    # The path of a union member carries type names of no use to a client: keep what comes before them.
    place = []
    for part in first["loc"]:
        if isinstance(part, str) and (part in _TYPE_NAMES or not part.replace("_", "").isalnum()):
            break
        place.append(str(part))
    where = ".".join(place)
    return _invalid(f"{where}: {first['msg']}" if where else first["msg"], where)


def _is_template_error(error: BaseException) -> bool:
    # By name, so that jinja2 need not be imported for a check.
    return any(kind.__name__ == "TemplateError" for kind in type(error).__mro__)
