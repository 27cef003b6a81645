"""What a request of several choices is told to have cost."""

from types import SimpleNamespace
from typing import Any

import pytest

from superinfer_executor.serving.stream import Stream
from superinfer_proto.v1 import work_pb2


def _output(index: int, prompt: list[int] | None) -> Any:
    completion = SimpleNamespace(index=index, token_ids=[7], text="a")
    return SimpleNamespace(outputs=[completion], prompt_token_ids=prompt, num_cached_tokens=None)


@pytest.mark.parametrize(
    "spoken",
    [
        pytest.param([_output(0, [1, 2, 3]), _output(1, [1, 2, 3])], id="first choice first"),
        pytest.param([_output(1, [1, 2, 3]), _output(0, None)], id="second choice first, the prompt once"),
        pytest.param([_output(1, [1, 2, 3]), _output(0, [1, 2, 3])], id="second choice first"),
    ],
)
def test_a_prompt_counts_once_whichever_choice_speaks_first(spoken):
    hooks = SimpleNamespace(now_ms=lambda: 0.0)
    request = Stream(
        work_pb2.Submit(request_id="r"), None, hooks, owner=None, limit_bytes=1, scheduler="slack"
    )
    for output in spoken:
        request.told(0, output, replayed=True)
    assert (request._usage.prompt_tokens, request._usage.completion_tokens) == (3, 2)
