"""Whose checkpoints go where: for every executor of a pool the peer that shares least with it.

Promise: pure and deterministic; one pass over the executors in order of their fault domains, so that it stays
cheap for large pools: each is paired with the one half the pool away.
"""

from collections.abc import Sequence

Place = tuple[tuple[str, ...], int]
"""Fault domain and slot of an executor."""


def peer_slots(places: Sequence[Place]) -> list[int | None]:
    """Slot of each one's peer; None where there is no other."""
    order = sorted(range(len(places)), key=places.__getitem__)
    total = len(order)
    peers: list[int | None] = [None] * total
    for rank, who in enumerate(order):
        domain, slot = places[who]
        other_domain, other_slot = places[order[(rank + total // 2) % total]]
        if other_domain[0] != domain[0] and other_slot != slot:
            peers[who] = other_slot
        else:
            peers[who] = _nearest(places, order, rank)
    return peers


def _nearest(places: Sequence[Place], order: Sequence[int], rank: int) -> int | None:
    """Among those half the pool away and next door, the one that shares least."""
    total = len(order)
    domain, slot = places[order[rank]]
    best: tuple[int, int, int] | None = None
    for step in {total // 2, (total + 1) // 2, 1, total - 1}:
        other_domain, other_slot = places[order[(rank + step) % total]]
        if other_slot == slot:
            continue
        cost = (_shared(domain, other_domain), abs(2 * step - total), other_slot)
        if best is None or cost < best:
            best = cost
    return None if best is None else best[2]


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    """How many levels two executors have in common, from the outermost."""
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count
