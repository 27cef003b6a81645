"""What the operator writes into a ChipletPool's status: what runs where, and why the rest does not.

Lists are bounded below what a pool may grow to, because status has to fit an object; counts beside them are
always whole. Condition types and reasons are closed lists.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from superinfer_core.api.v1alpha1.meta import ApiModel, ConditionStatus, Generation, ShortText
from superinfer_core.api.v1alpha1.schema_marks import ATOMIC, map_by

MAX_CHIPLETS: Final = 512
"""Executors listed one by one; more are only counted."""
MAX_UNPLACED: Final = 16
MAX_UNPLACED_NODES: Final = 16
MAX_ADVICE: Final = 32
MAX_SHAPES: Final = 8

CamelCaseWord = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=64)]
MediumText = Annotated[str, StringConstraints(max_length=1024)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Mebibytes = Annotated[int, Field(ge=0, le=1_000_000_000)]
DecimalText = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]{1,3})?$", max_length=16)]


class EngineType(StrEnum):
    """What runs the model."""

    VLLM = "VLLM"
    STUB = "Stub"


class MemoryCheck(StrEnum):
    """Whether placement looks at how much GPU memory a chiplet has."""

    ENFORCED = "Enforced"
    NOT_STATED = "NotStated"
    NOT_APPLICABLE = "NotApplicable"


class ShapeSpeed(StrEnum):
    """Where the speed of a chiplet shape is known from."""

    MEASURED = "Measured"
    ESTIMATED = "Estimated"


class PoolConditionType(StrEnum):
    """What a pool's condition is about, in the order they are shown."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    PLACED = "Placed"
    SERVING = "Serving"
    SCALING_LIMITED = "ScalingLimited"
    """Only where the pool has autoscaling bounds; True is the remarkable state, as in autoscalers."""


class PoolReason(StrEnum):
    """Why a pool's condition is what it is."""

    # Accepted
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    REFERENCE_NOT_FOUND = "ReferenceNotFound"
    NAMESPACE_NOT_COVERED = "NamespaceNotCovered"
    # Placed
    PLACED = "Placed"
    PARTLY_PLACED = "PartlyPlaced"
    NOT_PLACED = "NotPlaced"
    DEVICE_MISMATCH = "DeviceMismatch"
    SCALED_TO_ZERO = "ScaledToZero"
    NOT_ACCEPTED = "NotAccepted"
    # Ready and Serving
    READY = "Ready"
    SERVING = "Serving"
    EXECUTORS_STARTING = "ExecutorsStarting"
    EXECUTORS_FAILED = "ExecutorsFailed"
    EXECUTORS_DRAINING = "ExecutorsDraining"
    NO_EXECUTOR_READY = "NoExecutorReady"
    UPDATING = "Updating"
    DELETING = "Deleting"
    # ScalingLimited
    TOO_FEW_REPLICAS = "TooFewReplicas"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    WITHIN_BOUNDS = "WithinBounds"


class ChipletState(StrEnum):
    """Where an executor is in its life."""

    PENDING = "Pending"
    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    FAILED = "Failed"


class ChipletStatus(ApiModel):
    """One executor and the hardware it has."""

    executor: ShortText = Field(description="Name of the executor and its pod.")
    node: ShortText | None = Field(default=None, description="Node it is pinned to.")
    resource: ShortText | None = Field(
        default=None, description="Extended resource it asks for, e.g. nvidia.com/mig-3g.71gb."
    )
    device_ids: list[ShortText] | None = Field(
        default=None,
        alias="deviceIDs",
        max_length=72,
        description="Devices it holds: the one planned, then the one the kubelet really gave it.",
        json_schema_extra=ATOMIC,
    )
    fault_domain: list[ShortText] | None = Field(
        default=None,
        max_length=8,
        description="What fails together with it, smallest first: GPU, clique, node, rack, zone.",
        json_schema_extra=ATOMIC,
    )
    state: ChipletState = Field(description="Where it is in its life.")


class NodeRefusal(ApiModel):
    """Why one node could not take an executor."""

    node: ShortText = Field(description="Name of the node.")
    constraint: CamelCaseWord = Field(description="What it does not meet, e.g. NoFreeDevice or NodeSelector.")
    message: MediumText = Field(default="", description="The same in words, with figures.")


class UnplacedStatus(ApiModel):
    """One replica that could not be placed, and why, node by node."""

    slot: Count = Field(description="Which of the replicas, from 0.")
    reason: CamelCaseWord = Field(description="What stands in the way on most nodes.")
    message: MediumText = Field(default="", description="The same in words.")
    nodes: list[NodeRefusal] | None = Field(
        default=None,
        max_length=MAX_UNPLACED_NODES,
        description="The nodes that came closest, and what each does not meet.",
        json_schema_extra=map_by("node"),
    )


class MigConfigAdvice(ApiModel):
    """A MIG layout that would let more of the pool be placed. Advice only: nothing is reconfigured by it."""

    node: ShortText = Field(description="Name of the node.")
    device: ShortText = Field(description="UUID of the GPU, or `all` for every GPU of the node.")
    profiles: list[ShortText] | None = Field(
        default=None,
        max_length=16,
        description="Instances the GPU should have, one entry for each.",
        json_schema_extra=ATOMIC,
    )
    config: ShortText | None = Field(
        default=None, description="Name of a MIG manager configuration for the label nvidia.com/mig.config."
    )
    message: MediumText = Field(default="", description="What it would make possible.")


class MemoryStatus(ApiModel):
    """How much GPU memory a chiplet of the pool must have."""

    check: MemoryCheck = Field(
        description=(
            "Enforced: chiplets with less are refused. NotStated: nothing is checked, because "
            "spec.model.memory is not set. NotApplicable: the pool has no GPUs."
        )
    )
    needed_mib: Mebibytes | None = Field(
        default=None,
        alias="neededMiB",
        description="GPU memory a chiplet must have, all of its GPUs together.",
    )
    message: MediumText = Field(default="", description="How that comes about.")


class ShapeStatus(ApiModel):
    """A chiplet shape that keeps every contract of the pool, and that no other beats all in all."""

    shape: ShortText = Field(description="Product and MIG profile or GPUs, e.g. NVIDIA-H200 3g.71gb.")
    speed: ShapeSpeed = Field(
        description="Measured: from the pool's profile. Estimated: from that of another shape."
    )
    executors: Count = Field(description="Executors that carry the load.")
    gpus_per_executor: DecimalText = Field(description="Cost of one executor in GPUs, e.g. 0.5.")
    latency_margin_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        description="Share of the tightest target that is left, in percent."
    )
    tightest: ShortText | None = Field(default=None, description="The metric that target is of.")
    nodes: Count = Field(description="Nodes the executors could be spread over; at most one for each.")
    lost_with_a_node_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        description="Share of the executors that go with the worst node, in percent."
    )


class ChipletPoolStatus(ApiModel):
    """Written by the operator."""

    conditions: list[ConditionStatus] | None = Field(
        default=None,
        max_length=16,
        description=(
            "Accepted, Placed, Serving (at least one executor serves), and Ready as their summary; with "
            "autoscaling bounds ScalingLimited."
        ),
        json_schema_extra=map_by("type"),
    )
    observed_generation: Generation | None = Field(
        default=None, description="metadata.generation this status was computed from."
    )
    replicas: Count | None = Field(default=None, description="Executors that exist.")
    ready_replicas: Count | None = Field(default=None, description="Executors that serve.")
    placed_replicas: Count | None = Field(default=None, description="Executors that have a chiplet.")
    unplaced_replicas: Count | None = Field(
        default=None, description="Executors wanted for which no chiplet was found."
    )
    updated_replicas: Count | None = Field(
        default=None, description="Executors made from the spec as it is now."
    )
    selector: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        default=None, description="Label selector of the executors, for the scale subresource."
    )
    engine_type: EngineType | None = Field(
        default=None, description="Stub where no model is behind the pool."
    )
    chiplets: list[ChipletStatus] | None = Field(
        default=None,
        max_length=MAX_CHIPLETS,
        description="The executors and their hardware; the first 512 where there are more.",
        json_schema_extra=map_by("executor"),
    )
    unplaced: list[UnplacedStatus] | None = Field(
        default=None,
        max_length=MAX_UNPLACED,
        description="Replicas that could not be placed; the first 16 where there are more.",
        json_schema_extra=map_by("slot"),
    )
    mig_config_advice: list[MigConfigAdvice] | None = Field(
        default=None,
        max_length=MAX_ADVICE,
        description="MIG layouts that would let more of the pool be placed.",
        json_schema_extra=map_by("node", "device"),
    )
    memory: MemoryStatus | None = Field(
        default=None, description="GPU memory a chiplet must have, and whether that is checked."
    )
    shapes: list[ShapeStatus] | None = Field(
        default=None,
        max_length=MAX_SHAPES,
        description=(
            "Chiplet shapes the nodes offer that keep all contracts of the pool, without those another beats "
            "in cost, latency margin and spread; cheapest first."
        ),
        json_schema_extra=map_by("shape"),
    )
    shapes_message: MediumText | None = Field(
        default=None, description="What the shapes were worked out for, or why there are none."
    )
