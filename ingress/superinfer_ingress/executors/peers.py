"""Who the executors of a pool are, as each sidecar is told: it has no other way of knowing its peers."""

from collections.abc import Sequence
from typing import Protocol

from superinfer_ingress.config import ExecutorSettings
from superinfer_proto.v1 import sidecar_pb2


class PeerLink(Protocol):
    """A link, as far as peers are concerned."""

    @property
    def settings(self) -> ExecutorSettings:
        """Name, address, pool and fault domain."""
        ...

    def tell_peers(self, peers: sidecar_pb2.PeerList) -> None:
        """Hand the list on, now and on every connect."""
        ...


def tell_peers(links: Sequence[PeerLink]) -> None:
    """Tell every executor its pool's executors, itself among them; call it again when they have changed."""
    pools: dict[str, sidecar_pb2.PeerList] = {}
    for link in links:
        settings = link.settings
        pools.setdefault(settings.pool, sidecar_pb2.PeerList()).peers.add(
            executor=settings.name, address=settings.address, fault_domain=settings.fault_domain
        )
    for link in links:
        link.tell_peers(pools[link.settings.pool])
