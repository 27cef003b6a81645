"""What one engine step does with blocks: made by the scheduler's side, carried out by the worker's."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata


@dataclass(frozen=True, slots=True)
class Load:
    """Slot to cache block."""

    block_id: int
    slot: int
    sequence: int
    block_hash: bytes


@dataclass(frozen=True, slots=True)
class Save:
    """Cache block to slot; with `tail_tokens` above 0 of a block that has so many."""

    block_id: int
    slot: int
    block_hash: bytes
    stream: int
    ordinal: int
    tail_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reference:
    """A stream needs a block that is saved already."""

    slot: int
    stream: int
    ordinal: int


@dataclass
class StepPlan(KVConnectorMetadata):  # type: ignore[misc]
    """One step's work. Saves and references of a stream are in order.

    `blanks`: cache blocks that this step begins and does not fill. What they hold is of requests that ended.
    """

    blanks: list[int] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    saves: list[Save | Reference] = field(default_factory=list)
    deferred_blocks: int = 0
    no_room_blocks: int = 0


@dataclass
class StepReport(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """Which blocks can be read now, by their hashes."""

    saved: list[bytes] = field(default_factory=list)

    def aggregate(self, other: "KVConnectorWorkerMetadata") -> "StepReport":
        """There is one worker: see `UnsupportedEngine`."""
        raise NotImplementedError(f"reports of several workers: {other}")
