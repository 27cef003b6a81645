"""The engine stub: speaks Engine/Run and Engine/Render with no model behind it.

It exists for tests and for benchmarks of the proxies in front of an engine, so it is cheap per token and
announces itself as ENGINE_TYPE_STUB. It imports neither vLLM nor torch.
"""

from superinfer_executor.stub.command import main

__all__ = ["main"]
