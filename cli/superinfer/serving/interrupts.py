"""Being asked to stop, by Ctrl-C, SIGTERM or a closed terminal, with the exit code that shells expect then.

Promises: outside the blocks the signals mean what they meant before. Concurrency: main thread only.
"""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any, Final, TypeVar

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)

_Result = TypeVar("_Result")


class Interrupted(Exception):
    """The user asked to stop before the command was where it was going."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class StopRequest(asyncio.Event):
    """Set by the first signal, and knows which one it was."""

    def __init__(self) -> None:
        super().__init__()
        self.number: int = signal.SIGTERM

    def signalled(self, number: int) -> None:
        """A signal came; the first one counts."""
        if not self.is_set():
            self.number = number
            self.set()

    def interrupted(self) -> Interrupted:
        """What to raise because of it."""
        return Interrupted(self.number)


def _signals() -> tuple[signal.Signals, ...]:
    """Those that end the command; under nohup a closed terminal is none."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return _ENDING if ignored else (*_ENDING, signal.SIGHUP)


@contextlib.contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Signals set the request; whoever waits for it stops."""
    loop = asyncio.get_running_loop()
    numbers = _signals()
    for number in numbers:
        loop.add_signal_handler(number, stop.signalled, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def raising_on_signals() -> Iterator[None]:
    """Where no loop runs: signals raise `Interrupted`."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def unless_stopped(work: Coroutine[Any, Any, _Result], stop: StopRequest) -> _Result:
    """The result of the work, which is cancelled when a stop is asked for.

    Raises:
        Interrupted: a stop was asked for first; the work has cleaned up.
    """
    task, stopped = asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        raise stop.interrupted()
    return task.result()
