"""Inputs of the fill benchmark: clusters and streams of jobs, seeded or from openb-style CSV files.

The CSV files know no MIG and no links. Our own modelling step: every GPU is taken for one that is cut on
demand with the geometry of an 80 GB H100, and a share of `gpu_milli` becomes the smallest profile with at
least ceil(gpu_milli / 1000 * 7) compute slices.
"""

import csv
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape, Interconnect
from superinfer_core.placement.demand import ChipletDemand
from superinfer_core.placement.geometry import PRODUCTS
from superinfer_core.placement.node import Gpu, Node, Topology

_H100: Final = PRODUCTS["NVIDIA H100 80GB HBM3"]
_BY_SLICES: Final = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb"}
_MIB: Final = 1 << 20


class TraceUnusable(Exception):
    """A trace directory that cannot be read; says which file, row and column."""


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to place.

    Attributes:
        chiplet: the hardware.
        cpu_milli, memory_mib: what else it asks of its node.
        models: node models it may run on, empty any.
    """

    chiplet: ChipletDemand
    cpu_milli: int = 0
    memory_mib: int = 0
    models: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Input:
    """A cluster and what arrives at it.

    Attributes:
        name: for the report.
        nodes: all nodes.
        models: model of each node by name.
        jobs: what arrivals are drawn from, evenly.
    """

    name: str
    nodes: tuple[Node, ...]
    models: Mapping[str, str]
    jobs: tuple[Job, ...]

    @property
    def slices(self) -> int:
        """Memory slices of all GPUs."""
        return sum(8 * len(node.topology.gpus) for node in self.nodes if node.topology is not None)


def mig(profile: str) -> ChipletDemand:
    """An instance."""
    return ChipletDemand(ChipletShape.MIG, profile, named=True)


def whole(count: int) -> ChipletDemand:
    """Whole GPUs; several need NVLink."""
    interconnect = Interconnect.NVLINK_REQUIRED if count > 1 else Interconnect.ANY
    return ChipletDemand(ChipletShape.GPU, count=count, interconnect=interconnect, named=True)


def make_node(name: str, gpus: int, *, cpu_milli: int, memory_mib: int) -> Node:
    """A node whose GPUs are cut on demand."""
    made = tuple(
        Gpu(
            f"{name}-{index}",
            index,
            _H100.label,
            _H100.memory_mib,
            mig_enabled=True,
            nvswitch=True,
            profiles=_H100.mig_profiles,
        )
        for index in range(gpus)
    )
    allocatable = {"cpu": cpu_milli, "memory": memory_mib * _MIB}
    return Node(
        name, name, allocatable=allocatable, topology=Topology(made, dynamic_mig=True) if gpus else None
    )


_SERVING_MIX: Final = (
    (mig("1g.10gb"), 22),
    (mig("1g.20gb"), 8),
    (mig("2g.20gb"), 14),
    (mig("3g.40gb"), 14),
    (mig("4g.40gb"), 4),
    (whole(1), 22),
    (whole(2), 8),
    (whole(4), 5),
    (whole(8), 3),
)
"""Executors by share: many small models, few large ones."""


def serving_mix(nodes: int, seed: int) -> Input:
    """Nodes of eight GPUs with ample CPU, and a mix of executors."""
    made = tuple(
        make_node(f"node-{number:04}", 8, cpu_milli=1_000_000, memory_mib=4_000_000)
        for number in range(nodes)
    )
    jobs = tuple(Job(chiplet) for chiplet, share in _SERVING_MIX for _ in range(share))
    return Input(f"serving-mix-{seed}", made, {}, jobs)


def shared_cluster(nodes: int, seed: int) -> Input:
    """Like the published statistics of the openb trace: half of the nodes with 8 GPUs, most others with 2.

    Pods: 44 % a share of a GPU, 54 % one GPU, the rest several; CPU in proportion, with noise.
    """
    draw = random.Random(seed)
    sizes = draw.choices((8, 2, 4, 1), (617, 518, 50, 28), k=nodes)
    made = tuple(
        make_node(
            f"node-{number:04}",
            size,
            cpu_milli={8: 96_000, 4: 64_000, 2: 48_000, 1: 16_000}[size],
            memory_mib={8: 393_216, 4: 262_144, 2: 196_608, 1: 65_536}[size],
        )
        for number, size in enumerate(sizes)
    )
    jobs = []
    for _ in range(2000):
        kind = draw.choices(("share", "one", 2, 4, 8), (3078, 3911, 16, 15, 44))[0]
        if kind == "share":
            milli = draw.choice((100, 200, 250, 300, 320, 460, 500, 500, 800))
            chiplet, gpus = share_of_gpu(milli), milli / 1000
        elif kind == "one":
            chiplet, gpus = whole(1), 1.0
        else:
            chiplet, gpus = whole(int(kind)), float(kind)
        cpu = int(gpus * 11_000 * draw.choice((0.4, 0.7, 0.9, 1.0, 1.2))) + 500
        jobs.append(Job(chiplet, cpu, cpu * 3))
    return Input(f"shared-cluster-{seed}", made, {}, tuple(jobs))


def share_of_gpu(gpu_milli: int) -> ChipletDemand:
    """The smallest profile with as large a share of the compute slices; the whole GPU above four of them."""
    slices = math.ceil(gpu_milli / 1000 * 7)
    return mig(_BY_SLICES[slices]) if slices in _BY_SLICES else whole(1)


def openb(directory: Path) -> list[Input]:
    """One input for each `openb_pod_list*.csv`, on the nodes of `openb_node_list*.csv`."""
    node_files = sorted(directory.glob("openb_node_list*.csv"))
    pod_files = sorted(directory.glob("openb_pod_list*.csv"))
    if not node_files or not pod_files:
        msg = f"{directory}: needs openb_node_list*.csv and openb_pod_list*.csv"
        raise TraceUnusable(msg)
    chosen = next((file for file in node_files if "gpu_node" in file.name), node_files[0])
    rows = _rows(chosen, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
    nodes = []
    models = {}
    for row in rows:
        count = _int(row, "gpu", chosen)
        if count:
            cpu, memory = _int(row, "cpu_milli", chosen), _int(row, "memory_mib", chosen)
            nodes.append(make_node(row["sn"], count, cpu_milli=cpu, memory_mib=memory))
            models[row["sn"]] = row["model"]
    return [_openb_input(file, tuple(nodes), models) for file in pod_files]


def _openb_input(file: Path, nodes: tuple[Node, ...], models: Mapping[str, str]) -> Input:
    jobs = []
    for row in _rows(file, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")):
        count = _int(row, "num_gpu", file)
        if not count:
            continue
        milli = _int(row, "gpu_milli", file)
        chiplet = share_of_gpu(milli) if count == 1 and milli < 1000 else whole(count)
        wanted = frozenset(part for part in (row["gpu_spec"] or "").split("|") if part)
        jobs.append(Job(chiplet, _int(row, "cpu_milli", file), _int(row, "memory_mib", file), wanted))
    return Input(file.stem, nodes, models, tuple(jobs))


def _rows(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as text:
        reader = csv.DictReader(text)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            msg = f"{file}: has no column {', '.join(missing)}"
            raise TraceUnusable(msg)
        return list(reader)


def _int(row: Mapping[str, str], column: str, file: Path) -> int:
    try:
        return int(float(row[column]))
    except ValueError:
        msg = f"{file}: {column} is {row[column]!r}, not a number"
        raise TraceUnusable(msg) from None


def with_models(node: Node, models: Mapping[str, str], wanted: Mapping[frozenset[str], str]) -> Node:
    """The node with a label for every set of models its own is in, so that selectors can name sets."""
    model = models.get(node.name, "")
    labels = {label: "true" for group, label in wanted.items() if model in group}
    return replace(node, labels={**node.labels, **labels})
