"""A large cluster as documents: nodes with GPUs, pools on them, contracts on those. Deterministic, no I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from superinfer_kube.resources import (
    CHIPLET_POOLS,
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    SLO_CONTRACTS,
    Resource,
)

GPUS: Final = 8
_SHAPES: Final = (
    {"shape": "GPU"},
    {"shape": "GPU", "count": 2, "interconnect": "NVLinkRequired"},
    {"shape": "CPU"},
)
_PRODUCT: Final = "NVIDIA-H200"
_ALL_WELL: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Size:
    """How large.

    Attributes:
        nodes, pools, contracts: how many of each.
        namespaces: that pools and contracts are in.
    """

    nodes: int = 1000
    pools: int = 500
    contracts: int = 5000
    namespaces: int = 50

    @property
    def executors(self) -> int:
        """Replicas of all pools together."""
        return sum(replicas_of(number) for number in range(self.pools))


def namespace_of(number: int, size: Size) -> str:
    """The namespace of a pool or contract."""
    return f"team-{number % size.namespaces:03d}"


def pool_name(number: int) -> str:
    """Name of a pool."""
    return f"pool-{number:04d}"


def contract_name(number: int) -> str:
    """Name of a contract."""
    return f"contract-{number:05d}"


def replicas_of(number: int) -> int:
    """One to five."""
    return 1 + number % 5


def documents(size: Size) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Everything, in an order in which it can be created; `status` is to be written after."""
    for number in range(size.namespaces):
        yield NAMESPACES, {"metadata": {"name": namespace_of(number, size)}}
    for number in range(size.nodes):
        yield NODES, _node(number)
        yield NODE_TOPOLOGIES, _topology(number)
    for number in range(size.pools):
        yield CHIPLET_POOLS, pool(number, size)
    for number in range(size.contracts):
        yield SLO_CONTRACTS, contract(number, size)


def pool(number: int, size: Size) -> dict[str, Any]:
    """One pool; a stub, because nothing runs here."""
    return {
        "metadata": {"name": pool_name(number), "namespace": namespace_of(number, size)},
        "spec": {
            "model": {"name": f"model-{number % 20}"},
            "engine": {"type": "Stub"},
            "chiplet": dict(_SHAPES[number % len(_SHAPES)]),
            "replicas": replicas_of(number),
        },
    }


def contract(number: int, size: Size, *, target_ms: int = 500) -> dict[str, Any]:
    """One contract; every fifth inherits from the one before it in its namespace."""
    namespace = namespace_of(number, size)
    spec: dict[str, Any] = {
        "poolRef": {"name": pool_name(number % size.pools)},
        "tier": ("Gold", "Silver", "Bronze")[number % 3],
        "objectives": [
            {"metric": "TTFT", "percentile": 99, "targetMs": target_ms},
            {"metric": "ITL", "percentile": 99, "targetMs": 50},
        ],
        "availability": "99.9",
    }
    parent = number - size.namespaces
    if number // size.namespaces % 5 == 4 and parent >= 0:
        spec = {"parentRef": {"name": contract_name(parent)}, "priority": number % 100}
    return {"metadata": {"name": contract_name(number), "namespace": namespace}, "spec": spec}


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number:04d}"
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "MOCK node"}
    times = {"lastHeartbeatTime": _ALL_WELL, "lastTransitionTime": _ALL_WELL}
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "topology.superinfer.dev/rack": f"rack-{number // 20:02d}",
        "nvidia.com/gpu.product": _PRODUCT,
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{**condition, **times}]},
    }


def _topology(number: int) -> dict[str, Any]:
    gpus = [
        {
            "uuid": f"GPU-{number:04d}-{index}",
            "index": index,
            "product": _PRODUCT,
            "memoryMiB": 143_771,
            "numaNode": index // 4,
            "nvlinkSwitch": True,
            "health": {"state": "Healthy"},
        }
        for index in range(GPUS)
    ]
    status = {"source": "Mock", "product": _PRODUCT, "gpuCount": GPUS, "healthyGpuCount": GPUS, "gpus": gpus}
    return {"metadata": {"name": f"node-{number:04d}"}, "status": status}
