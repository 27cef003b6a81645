"""What the checkpoints of one sidecar count; metrics.py shows it. Event loop only."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Rejected(StrEnum):
    """Why a block was not taken."""

    CORRUPT = "corrupt"
    """Its seal is not that of its hash, layout and payload: damaged, cut short, or of another block."""
    FOREIGN = "foreign_layout"
    MALFORMED = "malformed"
    NO_ROOM = "no_room"
    MISSING = "missing"
    """Referred to, and not here; the sender is asked for it."""
    REPLAYED = "replayed"
    """Of a batch that was dealt with already."""
    GONE = "gone"
    """The engine has given its slot to another block before it could be sent."""
    OVERDUE = "overdue"
    """More waited to be sent than is kept waiting."""


class Restore(StrEnum):
    """How restoring a request went."""

    WHOLE = "whole"
    """Everything the best holder had."""
    PART = "part"
    """Time was up, or the holder failed."""
    OWN = "own"
    """All there is was here, in copies or in what the engine had saved, or the rest is quicker computed."""
    NONE = "none"
    """Nobody had anything."""
    CHEAP = "cheap"
    """Nothing was here, and too little is missing for asking others to be quicker than computing."""


@dataclass(slots=True)
class CheckpointCounters:
    """Counts since the start.

    Attributes:
        seen_blocks: increments the engine made.
        missed_scans: times the journal was outrun and the slab scanned.
        sent_blocks, sent_bytes: copies that went to peers.
        sent_references: blocks that peers had already.
        taken_blocks, taken_bytes: copies taken from peers.
        fetched_blocks, fetched_bytes: blocks that came from holders to restore a request here.
        served_blocks: blocks that others fetched from here.
        evicted_blocks, erased_blocks: of the store.
        rejected: blocks not taken or not sent, by reason.
        restores: resumed requests, by result.
        restore_ms: time spent on them.
        refused_peers: calls of peers that may not.
        broken_streams: replication streams that broke.
    """

    seen_blocks: int = 0
    missed_scans: int = 0
    sent_blocks: int = 0
    sent_bytes: int = 0
    sent_references: int = 0
    taken_blocks: int = 0
    taken_bytes: int = 0
    fetched_blocks: int = 0
    fetched_bytes: int = 0
    served_blocks: int = 0
    evicted_blocks: int = 0
    erased_blocks: int = 0
    restore_ms: float = 0.0
    refused_peers: int = 0
    broken_streams: int = 0
    rejected: "Counter[Any]" = field(default_factory=Counter)
    restores: "Counter[Any]" = field(default_factory=Counter)
