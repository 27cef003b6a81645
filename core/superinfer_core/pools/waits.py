"""How long what failed waits before it is tried again: twice as long each time, up to a bound. Pure."""

from typing import Final

from superinfer_core.doubling import doubled

FIRST_WAIT_S: Final = 5.0
LONGEST_WAIT_S: Final = 300.0


def growing_wait_s(failures: int) -> float:
    """The wait after so many failures that followed each other; none after none."""
    if failures <= 0:
        return 0.0
    return doubled(FIRST_WAIT_S, failures, LONGEST_WAIT_S)
