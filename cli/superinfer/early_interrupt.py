"""Ctrl-C while the command is still loading: it ends at once, without a traceback.

Promises: outside the block the signal means what it meant before. Only in the main thread.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from superinfer.exit_codes import INTERRUPTED


@contextlib.contextmanager
def ending_quietly() -> Iterator[None]:
    """SIGINT inside the block ends the process with the code shells give an interrupted command."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
