"""Refuses unreadable promises where the client still gets a 400: in vLLM's own input processing.

The scheduler must serve whatever reaches it, and a promise nobody can read would silently count as none. Only
engines that run one of our schedulers look at our keys at all.
"""

from typing import Any, Final

from vllm.exceptions import VLLMValidationError
from vllm.v1.engine.input_processor import InputProcessor

from superinfer_executor.plugin.request_slo import InvalidRequestSlo, parse_promise

_PATCHED: Final = "_superinfer_patched"


def install() -> None:
    """Check promises together with the other sampling parameters; harmless when done before."""
    if getattr(InputProcessor, _PATCHED, False):
        return
    original = InputProcessor._validate_params  # noqa: SLF001 - touch point, see test_touch_points.py

    def validate_params(self: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        extra_args = getattr(params, "extra_args", None)
        if extra_args and serves_promises(self.vllm_config.scheduler_config.scheduler_cls):
            try:
                parse_promise(extra_args)
            except InvalidRequestSlo as error:
                raise VLLMValidationError(f"vllm_xargs.{error}", parameter="vllm_xargs") from error
        return original(self, params, *args, **kwargs)

    InputProcessor._validate_params = validate_params  # noqa: SLF001
    setattr(InputProcessor, _PATCHED, True)


def serves_promises(scheduler_cls: object) -> bool:
    """Whether an engine with this scheduler (class, path or None) reads our keys."""
    if isinstance(scheduler_cls, str):
        return scheduler_cls.startswith("superinfer_executor.")
    return getattr(scheduler_cls, "__module__", "").startswith("superinfer_executor.")
