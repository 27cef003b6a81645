"""An event loop whose time passes only while everybody waits, and then at once.

For tests of what happens when: minutes cost nothing, and every time is exact. Code under test has to take its
time from the loop, or from a `monotonic` that a test replaces by `now_s`. Real I/O has no place in it.
"""

import asyncio
from selectors import DefaultSelector, SelectorKey
from typing import Final

from typing_extensions import override

_BEGIN_S: Final = 1000.0


class _Skipping(DefaultSelector):
    """Never waits; says how long it would have."""

    skipped_s = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout is None:
            msg = "everybody waits for somebody else"
            raise RuntimeError(msg)
        self.skipped_s += max(0.0, timeout)
        return super().select(0)


class VirtualTime(asyncio.SelectorEventLoop):
    """Time as it would be without any computing."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    @override
    def time(self) -> float:
        return _BEGIN_S + self._skipping.skipped_s


def now_s() -> float:
    """The time of the loop that runs."""
    return asyncio.get_running_loop().time()
