"""One loop around one step: it runs when something changed, alone, and every so often without a change.

Changes that come together are one run: the first is waited on for a moment, so that a burst is gathered once.
A step that fails is tried again after growing, scattered pauses. Concurrency: `poke` may be called from
anywhere on the event loop; `run` is one task.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from superinfer_operator.watching.cluster import Urgency

_log = logging.getLogger("superinfer.operator")

_FIRST_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the loop goes.

    Attributes:
        quiet_s: a change waits so long for others that come with it.
        soon_s: the same for changes that are seldom of consequence.
        idle_s: without any change the step still runs this often (certificates come due by time alone).
        longest_retry_s: pauses after failures grow up to this.
    """

    quiet_s: float = 0.1
    soon_s: float = 2.0
    idle_s: float = 600.0
    longest_retry_s: float = 30.0


class Loop:
    """Runs a step whenever it is due."""

    def __init__(self, step: Callable[[], Awaitable[float | None]], pace: Pace | None = None) -> None:
        """Prepare.

        Args:
            step: does everything there is to do; says after how many seconds time alone makes it due again.
            pace: how fast.
        """
        self._step = step
        self._pace = pace or Pace()
        self._due_s: float = 0.0
        self._moved = asyncio.Event()
        self.runs = 0
        """Steps that went well."""
        self.failures = 0
        """Steps that did not."""
        self.last_good_s: float | None = None
        """When a step went well last, on the monotonic clock."""
        self.took_s = 0.0
        """How long it took."""
        self.running_since_s: float | None = None
        """When the step that runs now began; None between steps."""

    def poke(self, urgency: Urgency = Urgency.NOW) -> None:
        """Something changed."""
        self._due_by(monotonic() + (self._pace.quiet_s if urgency is Urgency.NOW else self._pace.soon_s))

    async def run(self) -> None:
        """Run until cancelled."""
        retry_s = _FIRST_RETRY_S
        while True:
            await self._wait()
            started_s = monotonic()
            self._due_s = started_s + self._pace.idle_s
            self.running_since_s = started_s
            try:
                wake_s = await self._step()
            except Exception:  # noqa: BLE001 - the one place where a round may fail
                self.failures += 1
                _log.exception("reconcile failed; trying again in about %.0f s", retry_s)
                self._due_by(monotonic() + retry_s * (0.5 + random.random()))
                # Changes that come meanwhile must not turn a failing step into a busy loop.
                await asyncio.sleep(min(retry_s, 5.0) * 0.5)
                retry_s = min(self._pace.longest_retry_s, retry_s * 2)
                continue
            finally:
                self.running_since_s = None
            retry_s = _FIRST_RETRY_S
            self.runs += 1
            self.last_good_s = monotonic()
            self.took_s = self.last_good_s - started_s
            if wake_s is not None:
                self._due_by(monotonic() + max(self._pace.quiet_s, wake_s))

    async def _wait(self) -> None:
        while (left_s := self._due_s - monotonic()) > 0:
            self._moved.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._moved.wait()
            except TimeoutError:
                return

    def _due_by(self, at_s: float) -> None:
        if at_s < self._due_s:
            self._due_s = at_s
            self._moved.set()
