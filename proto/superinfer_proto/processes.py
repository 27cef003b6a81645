"""Whether another process of this machine is ending, by what Linux says of it.

A death is told (to the parent, to whoever holds a pidfd, by closed sockets) only after the kernel has freed
the memory of the process, which takes a second and more for an engine. That it ends is to be seen at once.
"""

from pathlib import Path
from typing import Final

_EXITING: Final = 0x4
"""PF_EXITING of the kernel's task flags."""
_FLAGS: Final = 6
"""Place of the flags in /proc/PID/stat, counted from the state."""
_OVER: Final = frozenset("ZX")


def is_ending(pid: int) -> bool:
    """Whether it is on its way out or gone; False where nothing can be seen of it."""
    try:
        figures = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return figures[0] in _OVER or bool(int(figures[_FLAGS]) & _EXITING)
    except (OSError, ValueError, IndexError):
        return False
