"""Where the copies of an executor's checkpoints go: rendezvous hashing among peers in another fault domain.

Pure: every sidecar comes to the same answer from the same list, an executor that comes or goes moves only the
copies that concern it, and load spreads evenly. Where nobody is known to be far enough away there is no peer,
never silently a nearer one.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class PeerPolicy(StrEnum):
    """How far away a copy must be."""

    NONE = "None"
    ANY = "Any"
    OTHER_GPU = "OtherGPU"
    OTHER_NODE = "OtherNode"
    OTHER_ZONE = "OtherZone"


_LEVELS: Final = ("zone", "rack", "node", "gpu")
"""Outermost first; a fault domain names each as "level/name", as far as it is known."""
_NEEDED: Final = {PeerPolicy.OTHER_ZONE: "zone", PeerPolicy.OTHER_NODE: "node", PeerPolicy.OTHER_GPU: "gpu"}


@dataclass(frozen=True, slots=True)
class Peer:
    """An executor of the pool.

    Attributes:
        executor: its name.
        address: of its sidecar.
        fault_domain: outermost first, such as ("zone/a", "node/n1", "gpu/GPU-5"), as far as known.
    """

    executor: str
    address: str
    fault_domain: tuple[str, ...] = ()


def choose_peers(me: str, peers: Iterable[Peer], policy: PeerPolicy, copies: int) -> tuple[Peer, ...]:
    """At most `copies` peers for the executor named `me`, best first.

    Args:
        me: our own name; our fault domain is read from our own line of the list.
        peers: the pool.
        policy: how far away.
        copies: how many.
    """
    listed = {peer.executor: peer for peer in peers}
    own = listed.pop(me, Peer(me, ""))
    fit = [peer for peer in listed.values() if peer.address and _far_enough(own, peer, policy)]
    fit.sort(key=lambda peer: (_weight(me, peer.executor), peer.executor), reverse=True)
    return tuple(fit[: max(0, copies)])


def _far_enough(own: Peer, other: Peer, policy: PeerPolicy) -> bool:
    if policy is PeerPolicy.NONE:
        return False
    if policy is PeerPolicy.ANY:
        return True
    ours, theirs = _named(own), _named(other)
    for level in _LEVELS[: _LEVELS.index(_NEEDED[policy]) + 1]:
        # Whatever differs further out differs further in, known there or not.
        if level in ours and level in theirs and ours[level] != theirs[level]:
            return True
    return False


def _named(peer: Peer) -> dict[str, str]:
    pairs = (domain.partition("/") for domain in peer.fault_domain)
    return {level: name for level, _, name in pairs if name}


def _weight(me: str, other: str) -> bytes:
    return hashlib.blake2b(f"{me}\0{other}".encode(), digest_size=8).digest()
