"""The JSON description of one mock node: the single source of everything the GPU mock shows.

Device plugin, mock libnvidia-ml and mock DRA driver all read this format, so they cannot disagree. Whatever
is left out gets a value derived from the node's name, so one description serves many nodes. Unknown fields
and impossible hardware are refused with the field's path. Docs: docs/gpu-mock.md. Frozen; safe to share.
"""

import json
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from superinfer_core.placement.node import RecoveryAction

FORMAT: Final = "superinfer-gpumock/v1"

MAX_GPUS: Final = 16
MAX_EVENTS: Final = 256

Name = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_.:-]{1,63}$")]
GpuUuid = Annotated[str, StringConstraints(strict=True, pattern=r"^GPU-[0-9a-f-]{36}$")]
MigUuid = Annotated[str, StringConstraints(strict=True, pattern=r"^MIG-[0-9a-f-]{36}$")]
PlainUuid = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
]
PciBusId = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0$")]
GpuIndex = Annotated[int, Field(strict=True, ge=0, lt=MAX_GPUS)]


class DescriptionInvalid(ValueError):
    """The description cannot be a node; the message names every wrong field."""


class Model(BaseModel):
    """Strict, frozen, camelCase in JSON."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True, extra="forbid", frozen=True
    )


class MigStrategy(StrEnum):
    """How the device plugin offers MIG instances, as NVIDIA's does."""

    MIXED = "mixed"
    SINGLE = "single"
    NONE = "none"


class Offer(StrEnum):
    """Through what the node's devices are allocated; never through both, they would be given out twice."""

    DEVICE_PLUGIN = "DevicePlugin"
    DRA = "DRA"


class MigInstance(Model):
    """One GPU instance with a compute instance of the same size in it."""

    profile: Annotated[str, StringConstraints(strict=True, min_length=2, max_length=32)]
    start: Annotated[int, Field(strict=True, ge=0, le=7)]
    uuid: MigUuid | None = None
    gi_id: Annotated[int, Field(strict=True, ge=0, le=63)] | None = None


class Mig(Model):
    """The MIG mode of a GPU and what was made in it."""

    enabled: bool = True
    instances: tuple[MigInstance, ...] = ()

    @model_validator(mode="after")
    def _instances_need_the_mode(self) -> Self:
        if self.instances and not self.enabled:
            raise PydanticCustomError(
                "mig_off", "instances are listed but enabled is false; set enabled to true"
            )
        return self


class EccCounts(Model):
    """Errors since the driver was loaded."""

    corrected: Annotated[int, Field(strict=True, ge=0)] = 0
    uncorrected: Annotated[int, Field(strict=True, ge=0)] = 0


class RemappedRows(Model):
    """Memory rows replaced by spare ones."""

    corrected: Annotated[int, Field(strict=True, ge=0)] = 0
    uncorrected: Annotated[int, Field(strict=True, ge=0)] = 0
    pending: bool = False
    failed: bool = False


class Gpu(Model):
    """One GPU; every field has a value of its own when left out."""

    uuid: GpuUuid | None = None
    pci_bus_id: PciBusId | None = None
    numa_node: Annotated[int, Field(strict=True, ge=0, le=63)] | None = None
    pci_path: Annotated[tuple[Name, ...], Field(max_length=4)] = Field(
        default=(),
        description="Bridges above the GPU from the host bridge down; shared beginnings mean closeness.",
    )
    mig: Mig | None = None
    lost: bool = Field(default=False, description="Fallen off the bus: every call about it fails.")
    recovery_action: RecoveryAction = RecoveryAction.NONE
    ecc: EccCounts = EccCounts()
    remapped_rows: RemappedRows = RemappedRows()


class NvSwitch(Model):
    """All GPUs reach each other through switches."""

    type: Literal["NVSwitch"]
    links_per_gpu: Annotated[int, Field(strict=True, ge=1, le=36)] = 18


class Bridge(Model):
    """A pair of GPUs and the links between them."""

    gpus: tuple[GpuIndex, GpuIndex]
    links: Annotated[int, Field(strict=True, ge=1, le=36)]


class Direct(Model):
    """GPUs wired to each other: bridges on PCIe cards, or a mesh."""

    type: Literal["Direct"]
    pairs: Annotated[tuple[Bridge, ...], Field(min_length=1, max_length=120)]


class Fabric(Model):
    """Membership of a multi-node NVLink fabric, as the fabric manager reports it."""

    cluster_uuid: PlainUuid
    clique_id: Annotated[int, Field(strict=True, ge=0, le=65535)] = 0


class EventType(StrEnum):
    """What NVML reports through an event set."""

    XID = "Xid"
    DOUBLE_BIT_ECC = "DoubleBitEcc"
    SINGLE_BIT_ECC = "SingleBitEcc"
    RECOVERY_ACTION = "RecoveryAction"


class Event(Model):
    """Something that happened; watchers get those with a sequence they have not seen."""

    sequence: Annotated[int, Field(strict=True, ge=1)]
    gpu: GpuIndex
    gi_id: Annotated[int, Field(strict=True, ge=0, le=63)] | None = None
    type: EventType
    data: Annotated[int, Field(strict=True, ge=0)] = 0


class Fault(Model):
    """An error that stands until it is recovered from; the device plugin's health follows these."""

    gpu: GpuIndex
    gi_id: Annotated[int, Field(strict=True, ge=0, le=63)] | None = None
    xid: Annotated[int, Field(strict=True, ge=1, le=999)]


class Description(Model):
    """A whole node."""

    format: Literal["superinfer-gpumock/v1"]
    product: Annotated[str, StringConstraints(strict=True, min_length=3, max_length=63)]
    driver_version: Annotated[str, StringConstraints(strict=True, pattern=r"^\d+\.\d+(\.\d+)?$")] = (
        "580.95.05"
    )
    cuda_version: Annotated[str, StringConstraints(strict=True, pattern=r"^\d+\.\d+$")] = "13.0"
    offer: Offer = Offer.DEVICE_PLUGIN
    mig_strategy: MigStrategy = MigStrategy.MIXED
    gpus: Annotated[tuple[Gpu, ...], Field(min_length=1, max_length=MAX_GPUS)]
    nvlink: Annotated[NvSwitch | Direct, Field(discriminator="type")] | None = None
    fabric: Fabric | None = None
    faults: Annotated[tuple[Fault, ...], Field(max_length=MAX_EVENTS)] = ()
    events: Annotated[tuple[Event, ...], Field(max_length=MAX_EVENTS)] = ()

    @model_validator(mode="after")
    def _references_exist(self) -> Self:
        count = len(self.gpus)
        for path, index in self._references():
            if index >= count:
                raise PydanticCustomError(
                    "no_such_gpu",
                    "{path} is {index}, but the node has GPUs 0 to {last}",
                    {"path": path, "index": index, "last": count - 1},
                )
        if isinstance(self.nvlink, Direct):
            _check_pairs(self.nvlink)
        sequences = [event.sequence for event in self.events]
        if sequences != sorted(set(sequences)):
            raise PydanticCustomError("sequence", "events must have strictly growing sequence numbers")
        return self

    def _references(self) -> list[tuple[str, int]]:
        found = [(f"faults[{at}].gpu", fault.gpu) for at, fault in enumerate(self.faults)]
        found += [(f"events[{at}].gpu", event.gpu) for at, event in enumerate(self.events)]
        if isinstance(self.nvlink, Direct):
            for at, bridge in enumerate(self.nvlink.pairs):
                found += [(f"nvlink.pairs[{at}].gpus", gpu) for gpu in bridge.gpus]
        return found


def _check_pairs(direct: Direct) -> None:
    seen: set[frozenset[int]] = set()
    for at, bridge in enumerate(direct.pairs):
        pair = frozenset(bridge.gpus)
        if len(pair) != 2 or pair in seen:
            why = "links a GPU to itself" if len(pair) != 2 else "is listed twice"
            raise PydanticCustomError(
                "pair", "nvlink.pairs[{at}] {why}; list every pair of two GPUs once", {"at": at, "why": why}
            )
        seen.add(pair)


def parse(text: str | bytes) -> Description:
    """Read a description; raises DescriptionInvalid with every problem, one a line."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise DescriptionInvalid(f"not JSON: {error}") from error
    try:
        return Description.model_validate(document)
    except ValidationError as error:
        raise DescriptionInvalid("\n".join(_problem(item) for item in error.errors())) from error


def _problem(item: object) -> str:
    assert isinstance(item, dict)
    path = ".".join(str(part) for part in item["loc"]) or "description"
    shown = json.dumps(item["input"], default=str)
    return f"{path}: {item['msg']}" + (f" (got {shown})" if len(shown) <= 80 and item["loc"] else "")


def render(description: Description) -> str:
    """The description as JSON, without what was left at its default."""
    document = description.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(document, indent=2) + "\n"
