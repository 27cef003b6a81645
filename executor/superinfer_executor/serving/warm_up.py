"""A first request through everything, so that the first client does not pay for lazy imports and kernels.

Event loop only.
"""

import asyncio
import json
import logging
from typing import Any, Final

from superinfer_executor.openai_paths import CHAT_PATH, COMPLETIONS_PATH
from superinfer_proto.v1 import slo_pb2, work_pb2

log = logging.getLogger(__name__)

WARM_UP_TOKENS: Final = 4


class WarmUpError(RuntimeError):
    """The engine cannot serve a trivial request."""


class _Collector:
    """A sink that waits for final outputs."""

    def __init__(self, expected: int) -> None:
        self.errors: dict[str, str] = {}
        self._left = expected
        self.done = asyncio.Event()

    def send(self, frame: work_pb2.Frame) -> None:
        for output in frame.outputs:
            if output.final:
                if output.HasField("error"):
                    self.errors[output.request_id] = output.error.message
                self._left -= 1
        if not self._left:
            self.done.set()


async def warm_up(service: Any, model: str) -> None:
    """Run a completion and a chat; the chat may fail (a base model has no template)."""
    bodies = {
        "warm-up-completion": (COMPLETIONS_PATH, {"prompt": [1, 2, 3], "stream": True}),
        "warm-up-chat": (CHAT_PATH, {"messages": [{"role": "user", "content": "Hello"}], "stream": True}),
    }
    collector = _Collector(len(bodies))
    with service.internal_sink(collector) as submit:
        for request_id, (path, document) in bodies.items():
            body = {"model": model, "max_tokens": WARM_UP_TOKENS, "temperature": 0.0, **document}
            submit(
                work_pb2.Submit(
                    request_id=request_id,
                    attempt=1,
                    path=path,
                    body=json.dumps(body).encode(),
                    slo=slo_pb2.RequestSlo(best_effort=True, contract_holds=True, budget_left=1.0),
                )
            )
        await collector.done.wait()
    for request_id, message in collector.errors.items():
        if request_id == "warm-up-completion":
            raise WarmUpError(message)
        log.info("no chat completions from this model: %s", message)
