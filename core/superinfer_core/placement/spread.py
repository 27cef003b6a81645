"""How evenly the executors of one pool are spread over what may fail.

Promise: pure arithmetic. One executor per domain is always fine; beyond that a domain may hold the tolerated
share of the pool before spreading counts as violated, and the least violated place wins.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from superinfer_core.api.v1alpha1.chipletpool import FaultDomain

LEVELS = {
    FaultDomain.ZONE: "zone",
    FaultDomain.RACK: "rack",
    FaultDomain.NODE: "node",
    FaultDomain.CLIQUE: "clique",
    FaultDomain.GPU: "gpu",
}
"""First part of the domain names of each level."""


@dataclass(slots=True, eq=False)
class Spread:
    """Executors of a pool by fault domain.

    Attributes:
        levels: what the pool spreads over, most important first, as in `LEVELS`.
        allowed: executors one domain may hold.
        counts: executors by domain name.
        prefixes: beginnings of the names of domains besides nodes that are counted.
        outer: some of them are not inside of nodes.
    """

    levels: tuple[str, ...]
    allowed: int
    counts: dict[str, int] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    outer: bool = False

    def __post_init__(self) -> None:
        """Work out the prefixes."""
        self.prefixes = tuple(f"{level}/" for level in self.levels if level != "node")
        self.outer = any(prefix != "gpu/" for prefix in self.prefixes)

    @classmethod
    def of(cls, levels: Iterable[FaultDomain], replicas: int, tolerated_loss: float) -> "Spread":
        """Nothing placed yet."""
        return cls(tuple(LEVELS[level] for level in levels), max(1, int(replicas * tolerated_loss)))

    def count(self, fault_domains: Iterable[Iterable[str]]) -> None:
        """Count in executors that have a place, by the fault domains of each."""
        self.counts = dict(Counter(chain.from_iterable(fault_domains)))

    def place(self, node: str, fault_domain: tuple[str, ...], inner: int) -> None:
        """Count one more executor where somebody will ask; domains from `inner` on are within the node."""
        counts = self.counts
        counts[node] = counts.get(node, 0) + 1
        for domain in fault_domain if self.outer else fault_domain[inner:]:
            if domain.startswith(self.prefixes):
                counts[domain] = counts.get(domain, 0) + 1

    def excess(self, domain: str) -> int:
        """By how many executors a domain would be over its allowance with one more."""
        return max(0, self.counts.get(domain, 0) + 1 - self.allowed)
