"""Where the copies of an executor's checkpoints go: rendezvous hashing among peers in another fault domain.

Pure: every sidecar comes to the same answer from the same list, an executor that comes or goes moves only the
copies that concern it, and load spreads evenly. Where nobody is known to be far enough away there is no peer,
never silently a nearer one.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class PeerPolicy(StrEnum):
    """How far away a copy must be."""

    NONE = "None"
    ANY = "Any"
    OTHER_GPU = "OtherGPU"
    OTHER_NODE = "OtherNode"
    OTHER_ZONE = "OtherZone"


_LEVELS = {PeerPolicy.OTHER_ZONE: 0, PeerPolicy.OTHER_NODE: 2, PeerPolicy.OTHER_GPU: 3}
"""Places in a fault domain: zone, rack, node, GPU."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An executor of the pool.

    Attributes:
        executor: its name.
        address: of its sidecar.
        fault_domain: outermost first: zone, rack, node, GPU; "" or missing where not known.
    """

    executor: str
    address: str
    fault_domain: tuple[str, ...] = ()


def choose_peers(
    me: str, peers: Iterable[Peer], policy: PeerPolicy, copies: int, *, leaving: frozenset[str] = frozenset()
) -> tuple[Peer, ...]:
    """At most `copies` peers for the executor named `me`, best first.

    Args:
        me: our own name; our fault domain is read from our own line of the list.
        peers: the pool.
        policy: how far away.
        copies: how many.
        leaving: executors that should get no new copies (draining, unreachable).
    """
    listed = {peer.executor: peer for peer in peers}
    own = listed.pop(me, Peer(me, ""))
    fit = [
        peer
        for peer in listed.values()
        if peer.address and peer.executor not in leaving and _far_enough(own, peer, policy)
    ]
    fit.sort(key=lambda peer: (_weight(me, peer.executor), peer.executor), reverse=True)
    return tuple(fit[: max(0, copies)])


def _far_enough(own: Peer, other: Peer, policy: PeerPolicy) -> bool:
    if policy is PeerPolicy.NONE:
        return False
    if policy is PeerPolicy.ANY:
        return True
    level = _LEVELS[policy]
    # Whatever differs further out differs further in: two GPUs of different nodes may share a number.
    ours, theirs = own.fault_domain[: level + 1], other.fault_domain[: level + 1]
    known = len(ours) == len(theirs) == level + 1 and ours[level] and theirs[level]
    return bool(known) and ours != theirs


def _weight(me: str, other: str) -> bytes:
    return hashlib.blake2b(f"{me}\0{other}".encode(), digest_size=8).digest()
