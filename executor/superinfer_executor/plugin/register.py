"""What vLLM calls in each of its processes (entry point group `vllm.general_plugins`).

The wheel may be installed where other engines run, so loading it changes nothing that an engine without our
keys could notice, and a vLLM we do not know is left as it is, with a warning: there, starting one of our
schedulers fails instead.
"""

import logging
import os

from superinfer_executor.vllm_version import (
    ALLOW_UNTESTED_ENV,
    UntestedVllmError,
    check_vllm_version,
    installed_vllm_version,
)

log = logging.getLogger(__name__)


def register() -> None:
    """Prepare this process; may be called more than once."""
    try:
        check_this_vllm()
    except UntestedVllmError as error:
        log.warning("superinfer's vLLM plug-in stays off: %s", error)
        return
    from superinfer_executor.plugin import front_door, worker

    worker.install()
    front_door.install()


def check_this_vllm() -> None:
    """Raise UntestedVllmError where nobody has tried this plug-in with the vLLM that loads it."""
    allowed = os.environ.get(ALLOW_UNTESTED_ENV) == "1"
    check_vllm_version(installed_vllm_version(), allow_untested=allowed)
