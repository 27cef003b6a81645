"""What vLLM says of a bad body, as a client is told: the parameter, and the limit where there is one."""

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

from superinfer_core.refusal import RefusalCode
from superinfer_executor.engine.refusals import RequestRefusedError, refusal_of

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def told(**body: object) -> RequestRefusedError:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - what it says is the subject
        ChatCompletionRequest(**{**HELLO, **body})
    return refusal_of(raised.value)


def test_too_many_stop_strings_are_told_the_limit() -> None:
    refusal = told(stop=["a"] * 100)
    assert refusal.param == "stop"
    assert "at most" in refusal.message
    assert "valid string" not in refusal.message


def test_a_value_of_no_fitting_type_names_the_field_alone() -> None:
    assert told(stop=5).param == "stop"


def test_an_image_for_a_model_of_text_names_the_messages() -> None:
    refusal = refusal_of(ValueError("smollm2 is not a multimodal model"))
    assert (refusal.code, refusal.param) == (RefusalCode.INVALID_REQUEST, "messages")
    assert refusal.message == "messages: smollm2 is not a multimodal model; send text only"
