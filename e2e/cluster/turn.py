"""One run at a time on a machine: who uses the cluster keeps others from making it anew under its hands.

Whoever comes second waits. The kernel ends a turn with the process that has it: nothing is left to clean up.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import layout
from e2e.cluster.shell import progress


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other process has the turn, and keep it while the block runs; not to be nested."""
    layout.LOCK.parent.mkdir(parents=True, exist_ok=True)
    with layout.LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another run uses the cluster; waiting until it ends")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
