"""Files that may change while the ingress runs: contracts and keys.

Promises: a change is in effect within a second; a file that became unusable changes nothing and is said so
once; where the system offers no file events, a slow poll takes their place; a directory that is replaced or
comes back is seen within seconds.
Concurrency: one task.
"""

import asyncio
import contextlib
import logging
import os
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
    said = ""
    while True:
        try:
            await _watch_these(paths, changed)
            said = ""
        except (OSError, RuntimeError) as error:
            if said != type(error).__name__:
                said = type(error).__name__
                _log.warning("watching files failed (%s); polling every %g s", said, _POLL_S)
            await asyncio.sleep(_POLL_S)
        await _safely(changed)


async def _watch_these(paths: Sequence[Path], changed: Callable[[], Awaitable[None]]) -> None:
    """Return when one of the paths has become another directory: file events are those of the old one."""
    with contextlib.ExitStack() as held:
        # Held open, so that the number of one that is removed is not given to the one that comes after it.
        descriptors = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]
        for descriptor in descriptors:
            held.callback(os.close, descriptor)
        watched = [os.fstat(descriptor) for descriptor in descriptors]
        async for changes in awatch(
            *paths,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            rust_timeout=int(_POLL_S * 1000),
            yield_on_timeout=True,
            recursive=False,
            raise_interrupt=False,
        ):
            if changes:
                await _safely(changed)
            if not all(map(os.path.samestat, watched, [path.stat() for path in paths])):
                return


async def _safely(changed: Callable[[], Awaitable[None]]) -> None:
    """One change that could not be taken in must not be the last that is looked at."""
    try:
        await changed()
    except Exception:  # noqa: BLE001 - logged; the next change may be a good one
        _log.exception("a change of files could not be taken in")
