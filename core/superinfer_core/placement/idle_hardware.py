"""What the nodes could hold if they were idle: the question behind shapes, whatever is taken just now.

Promise: the answer depends on hardware, labels and taints alone, so it does not change with every pod; nodes
that are away or cordoned count, because they come back. Remembers what it worked out: one thread at a time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.fit import Fitting
from superinfer_core.placement.geometry import GpuProduct, product_named
from superinfer_core.placement.hardware import NodeKind, describe
from superinfer_core.placement.node import Node, Taint, Topology
from superinfer_core.placement.standing import repelling


@dataclass(frozen=True, slots=True)
class AlikeNodes:
    """Nodes that no pool could tell apart.

    Attributes:
        kind: their GPUs.
        labels: those that some pool selects by.
        taints: that keep executors away.
    """

    kind: NodeKind
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]

    def admits(self, pool: PoolDemand) -> bool:
        """Whether executors of the pool may be there."""
        known = dict(self.labels)
        return all(known.get(key) == value for key, value in pool.node_selector.items()) and all(
            pool.tolerates(taint) for taint in self.taints
        )


class IdleHardware:
    """Nodes with GPUs, by likeness."""

    def __init__(self, alike: Mapping[AlikeNodes, int]) -> None:
        self.alike = dict(alike)
        self._fitting = Fitting({})
        self._fits: dict[tuple[ChipletDemand, int], bool] = {}

    def nodes_for(self, pool: PoolDemand, chiplet: ChipletDemand) -> int:
        """How many nodes the pool may use could hold such a chiplet."""
        found = 0
        for number, (nodes, count) in enumerate(self.alike.items()):
            key = (chiplet, number)
            if key not in self._fits:
                idle = (0,) * len(nodes.kind.gpus)
                self._fits[key] = self._fitting.choose(nodes.kind, idle, chiplet) is not None
            if self._fits[key] and nodes.admits(pool):
                found += count
        return found

    def products(self, pool: PoolDemand) -> list[GpuProduct]:
        """Known products on nodes the pool may use, by name."""
        names = {gpu.product for nodes in self.alike if nodes.admits(pool) for gpu in nodes.kind.gpus}
        known = (product_named(name) for name in names)
        return sorted({one.name: one for one in known if one is not None}.values(), key=lambda one: one.name)


@dataclass(slots=True)
class HardwareView:
    """Keeps an `IdleHardware` as nodes come and go; what it gives is the same object until that changes."""

    _labels: frozenset[str] = frozenset()
    _nodes: dict[str, tuple[Node, Topology | None, AlikeNodes | None]] = field(default_factory=dict)
    _same: dict[AlikeNodes, AlikeNodes] = field(default_factory=dict)
    _counts: dict[int, int] = field(default_factory=dict)
    _made: IdleHardware | None = None

    def of(
        self, nodes: Iterable[Node], topologies: Mapping[str, Topology], pools: Iterable[PoolDemand]
    ) -> IdleHardware:
        """The hardware there is.

        Args:
            nodes: all of them; those that changed are other objects.
            topologies: by node, likewise.
            pools: whose selectors say which labels matter.
        """
        labels = frozenset(key for pool in pools for key in pool.node_selector)
        if labels != self._labels:
            self._labels, self._nodes = labels, {}
        known, self._nodes = self._nodes, {}
        counts: dict[int, int] = {}
        found: dict[int, AlikeNodes] = {}
        for node in nodes:
            topology = topologies.get(node.name)
            before = known.get(node.name)
            if before is None or before[0] is not node or before[1] is not topology:
                before = (node, topology, self._alike(node, topology))
            self._nodes[node.name] = before
            if (alike := before[2]) is not None:
                counts[id(alike)] = counts.get(id(alike), 0) + 1
                found[id(alike)] = alike
        if self._made is None or counts != self._counts:
            self._counts = counts
            self._made = IdleHardware({found[number]: count for number, count in counts.items()})
            self._same = {alike: alike for alike in found.values()}
        return self._made

    def _alike(self, node: Node, topology: Topology | None) -> AlikeNodes | None:
        kind = describe(replace(node, topology=topology))
        if not kind.gpus:
            return None
        labels = tuple(sorted((key, node.labels[key]) for key in self._labels if key in node.labels))
        made = AlikeNodes(kind, labels, repelling(node.taints))
        return self._same.setdefault(made, made)
