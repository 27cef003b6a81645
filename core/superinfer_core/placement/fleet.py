"""All nodes with what is taken of them, arranged so that the best node for a chiplet is found quickly.

Promise: deterministic: what is found depends on what is there, never on the order in which it came. Mutable;
one owner, one thread. Nodes whose hardware, relevant labels, taints and GPU states are equal form a group,
and a group is judged once for all of its nodes.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.api.v1alpha1.labels import GPU_CLIQUE_LABEL, GPU_RESOURCE
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.devices import Devices, claim
from superinfer_core.placement.hardware import MIG_STRATEGY_LABEL, GpuKind, NodeKind, describe, shares_gpus
from superinfer_core.placement.node import Gpu, Node, Taint
from superinfer_core.placement.snapshot import ForeignUse, HoldDown, PlannerSettings, RunningExecutor
from superinfer_core.placement.standing import (
    Standing,
    gpu_domain,
    instance_domain,
    node_domain,
    repelling,
    standing,
)

_STALE: Final = 64
"""Entries of nodes that have left, which a group may keep before it is tidied."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the pools may ask about a node besides its hardware."""

    labels: tuple[str | None, ...]
    taints: tuple[Taint, ...]
    zone: str
    rack: str
    clique: str


@dataclass(slots=True, eq=False)
class Group:
    """Nodes nobody could tell apart.

    Attributes:
        facts, kind: what they have in common; each has a number, which is told apart faster.
        states: of their GPUs.
        heap: numbers of its nodes, the first on top; also of some that have left.
        alive: how many it has.
        names: those whose devices are all healthy, in order; None until somebody asks.
    """

    facts: Facts
    facts_number: int
    kind: NodeKind
    kind_number: int
    states: tuple[int, ...]
    heap: list[int] = field(default_factory=list)
    alive: int = 0
    names: list[str] | None = None


@dataclass(slots=True, eq=False)
class FleetNode:
    """One node with what is taken of it.

    Attributes:
        number: place in the order of names.
        node, kind, facts: what it is.
        standing: why it gets nothing new, None if it may.
        devices: states of its GPUs.
        free: allocatable less used, by resource name.
        domain: its name as a fault domain.
        base_domain: fault domains of everything on it, outermost first.
        single: its MIG instances go by the name of whole GPUs (MIG strategy single).
        load: executors on it.
        group: where it is listed; None where it gets nothing new, or is in somebody's hands.
        gpus: the GPUs behind the positions of its kind; empty where only counts are known.
        gpu_domains: their names as fault domains.
    """

    number: int
    node: Node
    kind: NodeKind
    kind_number: int
    facts: Facts
    facts_number: int
    standing: Standing | None
    devices: Devices
    free: dict[str, int]
    domain: str
    base_domain: tuple[str, ...]
    single: bool = False
    load: int = 0
    group: Group | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_domains: tuple[str, ...] = ()

    def resource_of(self, chiplet: ChipletDemand) -> str | None:
        """The extended resource a chiplet goes by here."""
        if self.single and chiplet.shape is ChipletShape.MIG:
            return GPU_RESOURCE
        return chiplet.resource


class Fleet:
    """The index.

    Args:
        nodes: all nodes.
        label_keys: labels that some pool asks about.
        domains: which of zone, rack and clique some pool spreads over.
        settings: label names.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        label_keys: Iterable[str],
        domains: frozenset[str],
        settings: PlannerSettings,
    ) -> None:
        self.label_keys = tuple(sorted(set(label_keys)))
        self.domains = domains
        self.settings = settings
        self.nodes: list[FleetNode | None] = []
        self.numbers: dict[str, int] = {}
        self.groups: dict[tuple[int, int, tuple[int, ...]], Group] = {}
        self._facts: dict[Facts, tuple[Facts, int]] = {}
        self._kinds: dict[object, tuple[NodeKind, int]] = {}
        self._profiles: dict[int, object] = {}
        self.apart: dict[str, FleetNode] = {}
        """Nodes no group speaks for: those that get nothing new, and those with unhealthy devices."""
        for node in sorted(nodes, key=lambda node: node.name):
            self.numbers[node.name] = len(self.nodes)
            self.nodes.append(None)
            self._bare(node)

    def get(self, name: str) -> FleetNode | None:
        """The node of that name."""
        number = self.numbers.get(name)
        return None if number is None else self.nodes[number]

    def __iter__(self) -> Iterator[FleetNode]:
        """All nodes, by name."""
        return (node for node in self.nodes if node is not None)

    def _bare(self, node: Node) -> FleetNode:
        number = self.numbers[node.name]
        kind, kind_number = self._kind(node)
        found = self._facts_of(node)
        facts, facts_number = self._facts.setdefault(found, (found, len(self._facts)))
        gpus = _gpus_of(node, kind)
        made = FleetNode(
            number=number,
            node=node,
            kind=kind,
            kind_number=kind_number,
            facts=facts,
            facts_number=facts_number,
            standing=None,
            devices=Devices.empty(kind),
            free={},
            domain=node_domain(node.name),
            base_domain=fault_domain(node, self.settings, clique=clique_of(node)),
            single=node.labels.get(MIG_STRATEGY_LABEL) == "single",
            gpus=gpus,
            gpu_domains=tuple([gpu_domain(gpu.uuid) for gpu in gpus]),
        )
        self.nodes[number] = made
        return made

    def renew(
        self,
        node: Node,
        executors: Iterable[RunningExecutor],
        foreign: Iterable[ForeignUse],
        holds: Mapping[str, HoldDown],
        now: float,
    ) -> FleetNode:
        """Set a node to what is known of it, from scratch."""
        if node.name not in self.numbers:
            self.numbers[node.name] = len(self.nodes)
            self.nodes.append(None)
        old = self.nodes[self.numbers[node.name]]
        if old is not None:
            self.take_out(old)
        if old is None or old.node is not node:
            old = self._bare(node)
        old.standing = standing(node, holds, now)
        old.devices = Devices.observed(node, old.kind, holds, now)
        old.free = dict(node.allocatable)
        old.load = 0
        # Devices that are known by name are taken first, so that those known by number take others.
        held = sorted(executors, key=lambda executor: not executor.held_devices)
        unnamed = next((at for at, one in enumerate(held) if not one.held_devices), len(held))
        for executor in held[:unnamed]:
            self._hold(old, executor)
        for use in foreign:
            old.free[use.resource] = old.free.get(use.resource, 0) - use.amount
            claim(old.devices, node, old.kind, use.resource, use.amount, use.devices)
        for executor in held[unnamed:]:
            self._hold(old, executor)
        self.put_back(old)
        return old

    def drop(self, name: str) -> None:
        """Forget a node that is gone."""
        number = self.numbers.get(name)
        node = None if number is None else self.nodes[number]
        if number is not None and node is not None:
            self.take_out(node)
            self.nodes[number] = None
            del self.numbers[name]

    def _hold(self, into: FleetNode, executor: RunningExecutor) -> None:
        into.load += 1
        for resource, amount in executor.requests.items():
            into.free[resource] = into.free.get(resource, 0) - amount
        devices = executor.held_devices
        if executor.resource is not None:
            into.free[executor.resource] = into.free.get(executor.resource, 0) - executor.count
            claim(into.devices, into.node, into.kind, executor.resource, executor.count, devices)
        elif devices:
            # A ResourceClaim holds devices without an extended resource.
            claim(into.devices, into.node, into.kind, GPU_RESOURCE, len(devices), devices)

    def take_out(self, node: FleetNode) -> None:
        """Take a node off its list, before what is taken of it changes."""
        if self.apart:
            self.apart.pop(node.node.name, None)
        group, node.group = node.group, None
        if group is None:
            return
        group.alive -= 1
        if group.alive == 0:
            del self.groups[(group.facts_number, group.kind_number, group.states)]
        elif group.names is not None and not node.devices.unhealthy:
            del group.names[bisect_left(group.names, node.node.name)]

    def put_back(self, node: FleetNode) -> None:
        """List a node by what is taken of it."""
        if node.standing is not None or node.devices.unhealthy:
            self.apart[node.node.name] = node
        if node.standing is not None:
            return
        states = node.devices.key(node.kind)
        key = (node.facts_number, node.kind_number, states)
        group = self.groups.get(key)
        if group is None:
            group = Group(node.facts, node.facts_number, node.kind, node.kind_number, states)
            self.groups[key] = group
        heappush(group.heap, node.number)
        group.alive += 1
        node.group = group
        if group.names is not None and not node.devices.unhealthy:
            insort(group.names, node.node.name)
        if len(group.heap) > 2 * group.alive + _STALE:
            numbers = set(group.heap)
            group.heap[:] = sorted(n for n in numbers if self._listed(n, group))

    def names_of(self, group: Group) -> list[str]:
        """Names of a group's nodes whose devices are all healthy, in order; not to be changed."""
        if group.names is None:
            members = [self.nodes[number] for number in set(group.heap) if self._listed(number, group)]
            group.names = sorted(
                node.node.name for node in members if node is not None and not node.devices.unhealthy
            )
        return group.names

    def first_of(self, group: Group, but: set[str]) -> FleetNode | None:
        """The node of a group that was known first and is not one of `but`."""
        left = list(group.heap)
        while left:
            node = self.nodes[heappop(left)]
            if node is not None and node.group is group and node.node.name not in but:
                return node
        return None

    def _listed(self, number: int, group: Group) -> bool:
        node = self.nodes[number]
        return node is not None and node.group is group

    def _facts_of(self, node: Node) -> Facts:
        labels = node.labels
        return Facts(
            tuple(labels.get(key) for key in self.label_keys),
            repelling(node.taints) if node.taints else (),
            labels.get(self.settings.zone_label, "") if "zone" in self.domains else "",
            labels.get(self.settings.rack_label, "") if "rack" in self.domains else "",
            clique_of(node) if "clique" in self.domains else "",
        )

    def _kind(self, node: Node) -> tuple[NodeKind, int]:
        key = self._kind_key(node)
        known = self._kinds.get(key)
        if known is None:
            described = describe(node)
            # Equal kinds of GPU become one object, which is told apart faster than by what it is.
            gpus: dict[GpuKind, GpuKind] = {}
            same = tuple(gpus.setdefault(kind, kind) for kind in described.gpus)
            known = self._kinds[key] = (NodeKind(same, described.nvlink, described.numa), len(self._kinds))
        return known

    def _kind_key(self, node: Node) -> object:
        topology = node.topology
        if topology is None or shares_gpus(node):
            counted = sorted(item for item in node.allocatable.items() if item[0].startswith("nvidia.com/"))
            labels = sorted(item for item in node.labels.items() if item[0].startswith("nvidia.com/"))
            return (tuple(counted), tuple(labels))
        keep = self._profiles.setdefault
        gpus = []
        for gpu in topology.gpus:
            # Profiles are told apart as objects, which is fast; here they are kept so that ids stay theirs.
            keep(id(gpu.profiles), gpu.profiles)
            cut = tuple([(one.profile, one.start) for one in gpu.instances]) if gpu.instances else ()
            mode = (gpu.mig_enabled, gpu.nvswitch, gpu.numa_node, id(gpu.profiles))
            gpus.append((gpu.index, gpu.product, gpu.memory_mib, mode, cut))
        return (tuple(gpus), topology.links, topology.dynamic_mig)


def fault_domain(
    node: Node, settings: PlannerSettings, gpus: Sequence[str] = (), instance: str = "", clique: str = ""
) -> tuple[str, ...]:
    """Names of what fails together with an executor, outermost first."""
    domain = []
    zone = node.labels.get(settings.zone_label)
    if zone:
        domain.append(f"zone/{zone}")
    rack = node.labels.get(settings.rack_label)
    if rack:
        domain.append(f"rack/{rack}")
    domain.append(node_domain(node.name))
    if clique:
        domain.append(f"clique/{clique}")
    domain.extend([gpu_domain(uuid) for uuid in gpus])
    if instance:
        domain.append(instance_domain(instance))
    return tuple(domain)


def _gpus_of(node: Node, kind: NodeKind) -> tuple[Gpu, ...]:
    """The GPUs behind the positions of a kind; empty where only counts are known."""
    if node.topology is None or len(node.topology.gpus) != len(kind.gpus):
        return ()
    if kind.gpus and not kind.gpus[0].known:
        return ()
    return node.topology.gpus


def clique_of(node: Node) -> str:
    """The multi-node NVLink clique of a node, "" none."""
    if node.topology is not None:
        return next((gpu.clique for gpu in node.topology.gpus if gpu.clique), "")
    return node.labels.get(GPU_CLIQUE_LABEL, "")
