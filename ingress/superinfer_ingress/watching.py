"""Files that may change while the ingress runs: contracts and keys.

Promises: a change is in effect within a second; a file that became unusable changes nothing and is said so
once; where the system offers no file events, a slow poll takes their place.
Concurrency: one task.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from watchfiles import awatch

_log = logging.getLogger("superinfer.ingress")

_DEBOUNCE_MS: Final = 200
_STEP_MS: Final = 100
_POLL_S: Final = 2.0


async def watch(paths: Sequence[Path], changed: Callable[[], Awaitable[None]]) -> None:
    """Call `changed` after every change under `paths`, for as long as the task lives."""
    if not paths:
        return
    while True:
        try:
            async for _ in awatch(
                *paths, debounce=_DEBOUNCE_MS, step=_STEP_MS, recursive=False, raise_interrupt=False
            ):
                await changed()
            return
        except (OSError, RuntimeError) as error:
            _log.warning("watching files failed (%s); polling every %g s", type(error).__name__, _POLL_S)
            await asyncio.sleep(_POLL_S)
            await changed()
