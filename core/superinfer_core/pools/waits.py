"""How long what failed waits before it is tried again: twice as long each time, up to a bound. Pure."""

from typing import Final

FIRST_WAIT_S: Final = 5.0
LONGEST_WAIT_S: Final = 300.0


def growing_wait_s(failures: int) -> float:
    """The wait after so many failures that followed each other; none after none."""
    if failures <= 0:
        return 0.0
    # A float of seconds must not overflow, however long something fails.
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failures - 1, 16))
