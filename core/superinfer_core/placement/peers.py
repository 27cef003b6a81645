"""Whose checkpoints go where: for every executor of a pool the peer that shares least with it.

Promise: pure and deterministic; one pass over the executors in order of their fault domains, so that it stays
cheap for large pools: each is paired with the one half the pool away.
"""

from collections.abc import Sequence
from dataclasses import replace

from superinfer_core.placement.outcome import Assignment, Kept


def with_peers(kept: Sequence[Kept], created: Sequence[Assignment]) -> tuple[list[Kept], list[Assignment]]:
    """The same executors, each with the slot of its peer."""
    everyone = [one.assignment for one in kept] + list(created)
    peers = peer_slots(everyone)
    count = len(kept)
    return (
        [
            replace(one, assignment=replace(one.assignment, peer=peer))
            for one, peer in zip(kept, peers[:count], strict=True)
        ],
        [replace(one, peer=peer) for one, peer in zip(created, peers[count:], strict=True)],
    )


def peer_slots(assignments: Sequence[Assignment]) -> list[int | None]:
    """Slot of each one's peer; None where there is no other."""
    order = sorted(range(len(assignments)), key=lambda i: (assignments[i].fault_domain, assignments[i].slot))
    total = len(order)
    peers: list[int | None] = [None] * total
    for place, who in enumerate(order):
        mine = assignments[who]
        best: tuple[int, int, int] | None = None
        # Half the pool away lies another domain unless one domain holds more than half of it.
        for step in {total // 2, (total + 1) // 2, 1, total - 1}:
            other = assignments[order[(place + step) % total]]
            if other.slot == mine.slot:
                continue
            shared = _shared(mine.fault_domain, other.fault_domain)
            rank = (shared, abs(2 * step - total), other.slot)
            if best is None or rank < best:
                best = rank
        if best is not None:
            peers[who] = best[2]
    return peers


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    """How many levels two executors have in common, from the outermost."""
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count
