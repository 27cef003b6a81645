"""Which executor a new request goes to: the emptiest that is soon enough for its promise, else the soonest.

An executor with less to do decodes quicker, which no prediction of a first token shows; and one that is
thought slow must be seen at work to be known better. Where a request goes on after a loss is another
decision, `failover.choice`: there, blocks it left behind count. Pure.
"""

from typing import Final

SOON_MS: Final = 100.0
"""A first token that nobody was promised is soon by then: nobody who reads along sees the difference."""

ENOUGH: Final = 0.5
"""Share of what is left of TTFT within which a prediction keeps it with ease: predictions err."""


def preference(
    executor: str, *, ttft_ms: float, requests: int, within_ms: float | None
) -> tuple[bool, float, float, str]:
    """What executors are ordered by; the least gets the request, the name decides between equals.

    Args:
        executor: its name.
        ttft_ms: predicted time to the first token there.
        requests: how many it has from here.
        within_ms: what is left of the request's TTFT; None where none is promised.
    """
    if ttft_ms <= (SOON_MS if within_ms is None else within_ms * ENOUGH):
        return False, requests, ttft_ms, executor
    return True, ttft_ms, requests, executor
