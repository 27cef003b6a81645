"""The hardware of a node without its names: kinds of GPUs, how they are linked, and what is taken of each.

Promise: pure. Nodes that were bought together share one `NodeKind`, so that what was worked out for one of
them holds for all. What is taken of a GPU is one small integer, its state:

- of a whole GPU: 0 free, `FULL` taken;
- of a GPU cut on demand: its taken memory slices, and above them the taken compute slices (and whether its
  media engines are taken); `FULL` when used whole;
- of a GPU cut beforehand: one bit for each of its instances.

A node without a `Topology` is described by stand-ins made from the counts of its resources: they have no
names and no links, so nothing that needs those is promised on them.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from itertools import combinations
from typing import Final

from superinfer_core.api.v1alpha1.labels import GPU_PRODUCT_LABEL, GPU_RESOURCE, MIG_RESOURCE_PREFIX
from superinfer_core.placement.geometry import (
    COMPUTE_SLICES,
    MEMORY_SLICES,
    MigProfile,
    memory_of_profile,
    product_named,
)
from superinfer_core.placement.node import Gpu, LinkType, Node, Topology

COMPUTE_SHIFT: Final = MEMORY_SLICES
COMPUTE_UNIT: Final = 1 << COMPUTE_SHIFT
MASK: Final = COMPUTE_UNIT - 1
MEDIA: Final = 1 << 11
FREE: Final = 0
FULL: Final = MASK | COMPUTE_SLICES * COMPUTE_UNIT

GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
SHARING_LABEL: Final = "nvidia.com/gpu.sharing-strategy"
MIG_STRATEGY_LABEL: Final = "nvidia.com/mig.strategy"


class GpuMode(IntEnum):
    """How a GPU can be used."""

    WHOLE = 0
    INSTANCES = 1
    """Cut beforehand: the instances it has, and nothing else."""
    DYNAMIC = 2
    """Cut on demand, or used whole."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An instance that exists; `start` is -1 where unknown."""

    profile: MigProfile
    start: int


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A GPU without its name.

    Attributes:
        product: label value, "" unknown.
        memory_mib: of the whole GPU, 0 unknown.
        mode: how it can be used.
        profiles: what it can be cut into (also where it is not).
        pieces: of mode INSTANCES: what it is cut into.
        shared: several pods get the same GPU at once (time-slicing, MPS).
        known: False for a stand-in made from counts.
        resource: extended resource of its whole self or, in mode INSTANCES where all are alike, its pieces.
    """

    product: str
    memory_mib: int
    mode: GpuMode
    profiles: tuple[MigProfile, ...] = ()
    pieces: tuple[Piece, ...] = ()
    shared: bool = False
    known: bool = True
    resource: str = GPU_RESOURCE

    @property
    def full(self) -> int:
        """The state in which nothing is left."""
        return (1 << len(self.pieces)) - 1 if self.mode is GpuMode.INSTANCES else FULL


@dataclass(frozen=True, slots=True)
class NodeKind:
    """The GPUs of a node by position, and the pairs with NVLink.

    Attributes:
        gpus: kinds by position.
        nvlink: pairs (a < b) connected by NVLink, directly or through a switch.
        numa: NUMA node by position, -1 unknown.
        flat: all GPUs are alike and equally far from each other, so only what is taken of how many matters.
    """

    gpus: tuple[GpuKind, ...]
    nvlink: frozenset[tuple[int, int]]
    numa: tuple[int, ...]
    flat: bool = field(init=False)

    def __post_init__(self) -> None:
        """Find out whether it is flat."""
        pairs = len(self.gpus) * (len(self.gpus) - 1) // 2
        alike = len(set(self.gpus)) <= 1
        object.__setattr__(self, "flat", alike and len(self.nvlink) in (0, pairs))

    def linked(self, positions: tuple[int, ...]) -> bool:
        """Whether every two of them have NVLink."""
        return all(pair in self.nvlink for pair in combinations(positions, 2))

    def missing_links(self, positions: tuple[int, ...]) -> int:
        """How many pairs of them have none."""
        return sum(pair not in self.nvlink for pair in combinations(positions, 2))

    def numa_nodes(self, positions: tuple[int, ...]) -> int:
        """Over how many NUMA nodes they lie."""
        return len({self.numa[position] for position in positions})


def shares_gpus(node: Node) -> bool:
    """Whether several pods get the same GPU at once (time-slicing, MPS)."""
    return node.labels.get(SHARING_LABEL, "none") not in ("", "none")


def describe(node: Node) -> NodeKind:
    """The hardware of a node: from its topology, else from its counts and labels."""
    if node.topology is None or shares_gpus(node):
        counted = _stand_ins(node)
        return NodeKind(counted, frozenset(), (-1,) * len(counted))
    topology = node.topology
    gpus = tuple(_gpu_kind(gpu, topology) for gpu in topology.gpus)
    numa = tuple(-1 if gpu.numa_node is None else gpu.numa_node for gpu in topology.gpus)
    return NodeKind(gpus, _nvlink_pairs(topology), numa)


def _gpu_kind(gpu: Gpu, topology: Topology) -> GpuKind:
    product = gpu.product.replace(" ", "-")
    known = product_named(product)
    profiles = gpu.profiles or (known.mig_profiles if known is not None else ())
    memory = gpu.memory_mib or (known.memory_mib if known is not None else 0)
    if topology.dynamic_mig and profiles:
        return GpuKind(product, memory, GpuMode.DYNAMIC, profiles)
    if not gpu.mig_enabled:
        return GpuKind(product, memory, GpuMode.WHOLE, profiles)
    by_name = {profile.name: profile for profile in profiles}
    pieces = tuple(
        Piece(
            by_name.get(instance.profile) or _unknown_profile(instance.profile, instance.size), instance.start
        )
        for instance in gpu.instances
    )
    return GpuKind(product, memory, GpuMode.INSTANCES, profiles, pieces)


def _unknown_profile(name: str, size: int, memory_mib: int | None = None) -> MigProfile:
    compute = int(name[0]) if name[:1].isdigit() else 1
    memory = memory_mib if memory_mib is not None else memory_of_profile(name)
    return MigProfile(name, size, compute, (), memory or 0)


def _nvlink_pairs(topology: Topology) -> frozenset[tuple[int, int]]:
    position = {gpu.index: place for place, gpu in enumerate(topology.gpus)}
    pairs = set()
    for link in topology.links:
        if link.type in (LinkType.NVLINK, LinkType.NVSWITCH) and link.a in position and link.b in position:
            a, b = position[link.a], position[link.b]
            pairs.add((min(a, b), max(a, b)))
    # On a switch every pair is connected at full bandwidth, whether or not it is listed.
    switched = [place for place, gpu in enumerate(topology.gpus) if gpu.nvswitch]
    pairs.update(combinations(switched, 2))
    # An instance has no peer access, not even to its neighbour on the same GPU.
    usable = {place for place, gpu in enumerate(topology.gpus) if not gpu.mig_enabled or topology.dynamic_mig}
    return frozenset(pair for pair in pairs if pair[0] in usable and pair[1] in usable)


def _stand_ins(node: Node) -> tuple[GpuKind, ...]:
    """GPUs as the counts tell them: each whole one alone, all instances of one profile together."""
    label = node.labels.get(GPU_PRODUCT_LABEL, "")
    product, _, single = label.partition("-MIG-")
    known = product_named(product)
    profiles = known.mig_profiles if known is not None else ()
    shared = shares_gpus(node)
    found: list[GpuKind] = []
    count = node.allocatable.get(GPU_RESOURCE, 0)
    if count and (single or (node.labels.get(MIG_STRATEGY_LABEL) == "single" and not product)):
        found.append(_counted_instances(node, product, profiles, single, count, GPU_RESOURCE, shared))
    elif count:
        memory = _number(node.labels.get(GPU_MEMORY_LABEL)) or (known.memory_mib if known is not None else 0)
        whole = GpuKind(product, memory, GpuMode.WHOLE, profiles, shared=shared, known=False)
        found.extend([whole] * count)
    for resource in sorted(node.allocatable):
        count = node.allocatable[resource]
        if resource.startswith(MIG_RESOURCE_PREFIX) and count > 0:
            name = resource.removeprefix(MIG_RESOURCE_PREFIX).replace(".me", "+me")
            found.append(_counted_instances(node, product, profiles, name, count, resource, shared))
    return tuple(found)


def _counted_instances(
    node: Node,
    product: str,
    profiles: tuple[MigProfile, ...],
    name: str,
    count: int,
    resource: str,
    shared: bool,
) -> GpuKind:
    known = next((profile for profile in profiles if profile.name == name), None)
    labelled = _number(node.labels.get(f"{resource}.memory"))
    profile = known or _unknown_profile(name, 0, labelled)
    pieces = (Piece(profile, -1),) * count
    return GpuKind(product, 0, GpuMode.INSTANCES, profiles, pieces, shared, known=False, resource=resource)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
