"""What one engine step does with blocks: made by the scheduler's side, carried out by the worker's."""

from dataclasses import dataclass, field
from enum import Enum, auto

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata


class Source(Enum):
    """Which slab a block is read from."""

    ENGINE = auto()
    STORE = auto()


@dataclass(frozen=True, slots=True)
class Load:
    """Slot to cache block."""

    block_id: int
    source: Source
    slot: int
    sequence: int
    block_hash: bytes


@dataclass(frozen=True, slots=True)
class Save:
    """Cache block to slot."""

    block_id: int
    slot: int
    block_hash: bytes
    stream: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A stream needs a block that is saved already."""

    slot: int
    stream: int
    ordinal: int


@dataclass
class StepPlan(KVConnectorMetadata):  # type: ignore[misc]
    """One step's work. Saves and references of a stream are in order."""

    loads: list[Load] = field(default_factory=list)
    saves: list[Save | Reference] = field(default_factory=list)
    deferred_blocks: int = 0
    no_room_blocks: int = 0


@dataclass
class StepReport(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """What became of it.

    Attributes:
        saved: hashes of blocks that can be read now.
        dropped: hashes of blocks that were planned and not saved.
        unreadable: hashes of blocks of the engine's slab that could not be loaded.
    """

    saved: list[bytes] = field(default_factory=list)
    dropped: list[bytes] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)

    def aggregate(self, other: "KVConnectorWorkerMetadata") -> "StepReport":
        """There is one worker: see `UnsupportedEngine`."""
        raise NotImplementedError(f"reports of several workers: {other}")
