"""Whether restoring a request's blocks pays, how long it may take, and from whom. Pure.

Restoring must never cost more than computing the tokens again: that time is the bound, whatever holders say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEAST_WORTHWHILE_MS: Final = 10.0
"""Less recomputing than this is not worth a call to another machine."""
MOST_RESTORE_MS: Final = 5_000.0
LOCATE_SHARE: Final = 0.25
"""Of the bound, at most so much goes into asking who has what."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one holder says it has.

    Attributes:
        address: of the holder.
        blocks: contiguous from the first on, of all streams.
        tails: of how many streams it has a part of the block after them.
    """

    address: str
    blocks: int
    tails: int = 0

    @property
    def halves(self) -> int:
        """What it has, in half blocks: a part of one is half of it at least."""
        return 2 * self.blocks + self.tails


@dataclass(frozen=True, slots=True)
class RestoreBounds:
    """How long to try.

    Attributes:
        locate_ms: to ask holders.
        total_ms: until the request goes on, with whatever came.
    """

    locate_ms: float
    total_ms: float


def restore_bounds(recompute_ms: float) -> RestoreBounds | None:
    """Bounds for a request whose missing tokens take `recompute_ms` to compute; None: do not ask at all."""
    if not recompute_ms > LEAST_WORTHWHILE_MS:
        return None
    total_ms = min(recompute_ms, MOST_RESTORE_MS)
    return RestoreBounds(total_ms * LOCATE_SHARE, total_ms)


def best_holding(holdings: Sequence[Holding], own: Holding) -> Holding | None:
    """The holder that has most, and more than we have ourselves; the first asked among equals."""
    ahead = [holding for holding in holdings if holding.halves > own.halves]
    return max(ahead, key=lambda holding: holding.halves, default=None)


def missing_tokens(tokens: int, *, block_tokens: int, blocks: int, tail: bool) -> int:
    """Tokens of a stream that somebody else may have, where we have so many blocks and that part of the next.

    The last token is computed anyway, and a part of a block is saved once it is half of it.
    """
    whole, rest = divmod(max(0, tokens - 1), block_tokens)
    if blocks < whole:
        return (whole - blocks) * block_tokens
    return 0 if blocks > whole or tail or 2 * rest < block_tokens else rest
