"""Nodes and pools for placement tests, plain and random."""

from dataclasses import replace

from hypothesis import strategies as st

from superinfer_core.api.v1alpha1.chipletpool import Allocation, ChipletShape, FaultDomain, Interconnect
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.geometry import PRODUCTS, MigProfile
from superinfer_core.placement.node import (
    Gpu,
    Health,
    HealthState,
    Link,
    LinkType,
    MigInstance,
    Node,
    Topology,
)

H200, H100, A100 = "NVIDIA-H200", "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-80GB-PCIe"
SIZES = {"7g": 8, "4g": 4, "3g": 4, "2g": 2, "1g": 1}
MIXED_H100 = (("3g.40gb", 0), ("2g.20gb", 4), ("1g.10gb", 6))
ALL_3G_H100 = (("3g.40gb", 0), ("3g.40gb", 4))
UNHEALTHY = Health(HealthState.UNHEALTHY, "Xid79")
BRIDGES = ((0, 2), (1, 3), (4, 5), (6, 7))
"""Pairs of a real machine: not neighbours."""


def profiles(product: str) -> tuple[MigProfile, ...]:
    return PRODUCTS[next(name for name in PRODUCTS if name.replace(" ", "-") == product)].mig_profiles


def labels(name: str, zone: str = "", rack: str = "") -> dict[str, str]:
    made = {"kubernetes.io/hostname": name}
    if zone:
        made["topology.kubernetes.io/zone"] = zone
    if rack:
        made["topology.superinfer.dev/rack"] = rack
    return made


def switched(name: str, *, gpus: int = 8, product: str = H200, zone: str = "", rack: str = "") -> Node:
    """GPUs behind NVSwitch, used whole."""
    made = tuple(
        Gpu(f"GPU-{name}-{i}", i, product, 143771, numa_node=i // 4, nvswitch=True) for i in range(gpus)
    )
    return Node(
        name, f"uid-{name}", labels(name, zone, rack), allocatable={"nvidia.com/gpu": gpus, "cpu": 64_000},
        topology=Topology(made),
    )  # fmt: skip


def bridged(name: str) -> Node:
    """Eight PCIe GPUs, in pairs that are not neighbours."""
    made = tuple(Gpu(f"GPU-{name}-{i}", i, A100, 81920, numa_node=i // 4) for i in range(8))
    links = tuple(Link(a, b, LinkType.NVLINK, 12) for a, b in BRIDGES)
    return Node(
        name, f"uid-{name}", labels(name), allocatable={"nvidia.com/gpu": 8, "cpu": 64_000},
        topology=Topology(made, links),
    )  # fmt: skip


def cut(
    name: str,
    layouts: tuple[tuple[tuple[str, int], ...], ...] = (MIXED_H100,),
    *,
    product: str = H100,
    zone: str = "",
) -> Node:
    """GPUs in MIG mode, one layout each."""
    allocatable: dict[str, int] = {"cpu": 64_000}
    gpus = []
    for i, layout in enumerate(layouts):
        instances = tuple(
            MigInstance(f"MIG-{name}-{i}-{n}", profile, start, SIZES[profile[:2]])
            for n, (profile, start) in enumerate(layout)
        )
        gpus.append(Gpu(f"GPU-{name}-{i}", i, product, 81559, mig_enabled=True, instances=instances))
        for profile, _ in layout:
            key = f"nvidia.com/mig-{profile}"
            allocatable[key] = allocatable.get(key, 0) + 1
    return Node(
        name, f"uid-{name}", labels(name, zone), allocatable=allocatable, topology=Topology(tuple(gpus))
    )


def dynamic(name: str, *, gpus: int = 2, product: str = H100) -> Node:
    """GPUs a DRA driver cuts on demand."""
    made = tuple(
        Gpu(f"GPU-{name}-{i}", i, product, 81559, mig_enabled=True, profiles=profiles(product))
        for i in range(gpus)
    )
    return Node(name, f"uid-{name}", labels(name), allocatable={"cpu": 64_000},
                topology=Topology(made, dynamic_mig=True))  # fmt: skip


def counted(name: str, product: str = H100, **resources: int) -> Node:
    """A node nobody has published a NodeTopology for."""
    allocatable = {
        f"nvidia.com/{key.replace('_', '-').replace('--', '.')}": n for key, n in resources.items()
    }
    return Node(
        name,
        f"uid-{name}",
        labels(name) | {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "81559"},
        allocatable=allocatable | {"cpu": 64_000},
    )


def bare(name: str, *, zone: str = "", rack: str = "") -> Node:
    return Node(name, f"uid-{name}", labels(name, zone, rack), allocatable={"cpu": 64_000})


def mig(profile: str, **more: object) -> ChipletDemand:
    return ChipletDemand(ChipletShape.MIG, profile, **more)  # type: ignore[arg-type]


def gpu(count: int = 1, **more: object) -> ChipletDemand:
    return ChipletDemand(ChipletShape.GPU, count=count, **more)  # type: ignore[arg-type]


def pair() -> ChipletDemand:
    return gpu(2, interconnect=Interconnect.NVLINK_REQUIRED)


CPU = ChipletDemand(ChipletShape.CPU)


def pool(name: str, replicas: int, chiplet: ChipletDemand, **more: object) -> PoolDemand:
    return PoolDemand(f"ns/{name}", f"uid-{name}", replicas, chiplet, revision="r1", **more)  # type: ignore[arg-type]


_random_layouts = st.sampled_from(
    (
        MIXED_H100,
        ALL_3G_H100,
        (("7g.80gb", 0),),
        tuple(("1g.10gb", start) for start in range(7)),
        (("4g.40gb", 0), ("3g.40gb", 4)),
        (),
    )
)


@st.composite
def random_nodes(draw: st.DrawFn, most: int = 6) -> tuple[Node, ...]:
    made = []
    for number in range(draw(st.integers(0, most))):
        name = f"n{number}"
        zone = draw(st.sampled_from(("", "a", "b")))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            node = switched(name, gpus=draw(st.sampled_from((2, 4, 8))), zone=zone)
        elif kind == 1:
            node = bridged(name)
        elif kind == 2:
            node = cut(name, tuple(draw(st.lists(_random_layouts, min_size=1, max_size=3))), zone=zone)
        elif kind == 3:
            node = dynamic(name)
        elif kind == 4:
            node = counted(name, gpu=draw(st.integers(1, 4)), mig_3g__40gb=draw(st.integers(0, 3)))
        else:
            node = bare(name, zone=zone)
        made.append(_with_trouble(draw, node))
    return tuple(made)


def _with_trouble(draw: st.DrawFn, node: Node) -> Node:
    trouble = draw(st.integers(0, 9))
    if trouble == 0:
        return replace(node, schedulable=False)
    if trouble == 1:
        return replace(node, ready=False, not_ready_since=draw(st.sampled_from((0.0, 90.0))))
    if trouble == 2 and node.topology is not None:
        first = replace(node.topology.gpus[0], health=UNHEALTHY)
        return replace(node, topology=replace(node.topology, gpus=(first, *node.topology.gpus[1:])))
    return node


_random_demands = st.sampled_from(
    (
        mig("3g.40gb"),
        mig("2g.20gb"),
        mig("1g.10gb"),
        mig("1g.20gb"),
        mig("7g.80gb"),
        gpu(),
        gpu(2),
        pair(),
        gpu(4, interconnect=Interconnect.NVLINK_PREFERRED),
        gpu(product=H200),
        gpu(memory_mib=100_000),
        CPU,
    )
)


@st.composite
def random_pools(draw: st.DrawFn, most: int = 5) -> tuple[PoolDemand, ...]:
    return tuple(
        pool(
            f"p{number}",
            draw(st.integers(0, 5)),
            draw(_random_demands),
            allocation=draw(st.sampled_from(Allocation)),
            spread=tuple(draw(st.lists(st.sampled_from(FaultDomain), max_size=3, unique=True))),
            requests=draw(st.sampled_from(({}, {"cpu": 16_000}))),
        )
        for number in range(draw(st.integers(0, most)))
    )
