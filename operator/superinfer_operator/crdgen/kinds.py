"""What a kind has beside its schema: names, scope, subresources and the columns of `kubectl get`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from superinfer_core.api.v1alpha1.chipletpool import CHIPLETPOOL_KIND, ChipletPool
from superinfer_core.api.v1alpha1.meta import ApiModel
from superinfer_core.api.v1alpha1.nodetopology import NODETOPOLOGY_KIND, NodeTopology
from superinfer_core.api.v1alpha1.slocontract import SLOCONTRACT_KIND, SLOContract

CATEGORY: Final = "superinfer"


class Scope(StrEnum):
    """Whether objects live in a namespace."""

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; those of priority 1 only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the scale subresource finds its numbers."""

    spec_replicas: str
    status_replicas: str
    selector: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of superinfer.dev."""

    name: str
    plural: str
    singular: str
    short_name: str
    scope: Scope
    model: type[ApiModel]
    columns: tuple[Column, ...]
    scale: Scale | None = None
    selectable: tuple[str, ...] = ()
    """Fields for `--field-selector`."""


def condition(kind: str, what: str, column: str = "") -> Column:
    """Column with one attribute of a condition."""
    return Column(
        column or kind,
        f'.status.conditions[?(@.type=="{kind}")].{what}',
        description=f"The {what} of the condition {kind}.",
    )


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date", "How long the object has existed.")


def _target(metric: str, priority: int = 0) -> Column:
    return Column(
        metric,
        f'.status.effective.spec.objectives[?(@.metric=="{metric}")].targetMs',
        description=f"Target for {metric} at its highest percentile, in milliseconds, after inheritance.",
        priority=priority,
    )


_EFFECTIVE: Final = ".status.effective.spec"

SLOCONTRACT: Final = Kind(
    SLOCONTRACT_KIND,
    "slocontracts",
    "slocontract",
    "slo",
    Scope.NAMESPACED,
    SLOContract,
    (
        Column("Pool", f"{_EFFECTIVE}.poolRef.name", description="Pool that serves it, after inheritance."),
        Column("Tier", f"{_EFFECTIVE}.tier", description="Tier after inheritance."),
        _target("TTFT"),
        _target("ITL", priority=1),
        _target("E2E", priority=1),
        Column("Kept", ".status.attainment.fulfilled", description="Whether it is kept over its window."),
        condition("Ready", "status"),
        condition("Ready", "reason", "Reason"),
        Column("Parent", ".status.effective.parent", description="Contract it inherits from.", priority=1),
        _AGE,
    ),
    selectable=(".spec.serviceID", ".spec.poolRef.name", ".spec.tier"),
)

CHIPLETPOOL: Final = Kind(
    CHIPLETPOOL_KIND,
    "chipletpools",
    "chipletpool",
    "chippool",
    Scope.NAMESPACED,
    ChipletPool,
    (
        Column("Model", ".spec.model.name", description="What clients write as `model`."),
        Column("Shape", ".spec.chiplet.shape", description="Hardware of one executor."),
        Column("Profile", ".spec.chiplet.profile", description="MIG profile."),
        Column("Wanted", ".spec.replicas", "integer", "Executors wanted."),
        Column("Up", ".status.readyReplicas", "integer", "Executors that serve."),
        condition("Serving", "status"),
        condition("Ready", "status"),
        condition("Ready", "reason", "Reason"),
        Column("Unplaced", ".status.unplacedReplicas", "integer", "Executors without hardware.", priority=1),
        Column("Engine", ".status.engineType", description="Stub: no model is behind it.", priority=1),
        _AGE,
    ),
    Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    selectable=(".spec.model.name", ".spec.chiplet.shape", ".spec.engine.type"),
)

NODETOPOLOGY: Final = Kind(
    NODETOPOLOGY_KIND,
    "nodetopologies",
    "nodetopology",
    "nodetopo",
    Scope.CLUSTER,
    NodeTopology,
    (
        Column("Product", ".status.product", description="Product of the first GPU."),
        Column("GPUs", ".status.gpuCount", "integer", "GPUs of the node."),
        Column("Healthy", ".status.healthyGpuCount", "integer", "GPUs that are Healthy."),
        Column("Instances", ".status.instanceCount", "integer", "MIG instances."),
        Column("Source", ".status.source", description="NVML, or Mock: no such hardware is there."),
        condition("Ready", "status"),
        condition("Ready", "reason", "Reason"),
        Column("Driver", ".status.driverVersion", description="Version of the GPU driver.", priority=1),
        _AGE,
    ),
)

KINDS: Final = (SLOCONTRACT, CHIPLETPOOL, NODETOPOLOGY)
