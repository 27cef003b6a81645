"""Which filled blocks are saved in this step, when the step may not save them all. Pure.

What is closest to being whole comes first: a request's blocks are of use only from the first one on without a
gap, so each goes in order; more important requests before others, and among equals those that lack least,
since a long prompt must not keep everyone else's increments waiting.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unsaved:
    """What one request has filled and not saved.

    Attributes:
        request_id: whose.
        rank: of its tier; lower is more important.
        blocks: how many blocks.
    """

    request_id: str
    rank: int
    blocks: int


def share_out(unsaved: Iterable[Unsaved], room: int) -> dict[str, int]:
    """How many blocks of each request are saved now, `room` in all."""
    shares: dict[str, int] = {}
    for request in sorted(unsaved, key=lambda each: (each.rank, each.blocks, each.request_id)):
        if room <= 0:
            break
        shares[request.request_id] = min(room, request.blocks)
        room -= shares[request.request_id]
    return shares
