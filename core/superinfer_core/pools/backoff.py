"""When a replica that keeps failing is tried again. Pure.

A pod that failed (refused by the kubelet, evicted, ended) is replaced at once the first time; each further
failure of the same slot waits longer. A replica that served for a while has a clean record again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from superinfer_core.placement import ExecutorPhase
from superinfer_core.pools.waits import LONGEST_WAIT_S, growing_wait_s

CLEAN_AFTER_S: Final = 120.0
_FORGOTTEN_AFTER_S: Final = 10 * LONGEST_WAIT_S
_MOST_STRIKES: Final = 32

Slot = tuple[str, int]
"""A pool's key and the number of its replica."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """How the pod of a slot looks now.

    Attributes:
        slot: which replica it is.
        uid: which pod.
        phase: how far it is.
    """

    slot: Slot
    uid: str
    phase: ExecutorPhase


@dataclass(frozen=True, slots=True)
class Record:
    """Failures of one slot.

    Attributes:
        strikes: failures that followed each other.
        until: nothing new before.
        seen: UID of the pod counted last, so that each counts once.
        serving_since: when the replica that serves now was first seen to; None while none does.
    """

    strikes: int = 0
    until: float = 0.0
    seen: str = ""
    serving_since: float | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Records of the slots that failed lately."""

    records: Mapping[Slot, Record] = field(default_factory=dict)

    def wait_s(self, slot: Slot, now: float) -> float:
        """How long a slot has to wait yet; 0 where it need not."""
        record = self.records.get(slot)
        return 0.0 if record is None else max(0.0, record.until - now)

    def next_at(self, now: float) -> float | None:
        """When the next wait ends."""
        return min((r.until for r in self.records.values() if r.until > now), default=None)


def observe(backoff: Backoff, sightings: Iterable[Sighting], now: float) -> Backoff:
    """The records after what is seen now; slots without a failure have none."""
    records = dict(backoff.records)
    for pod in sightings:
        record = records.get(pod.slot)
        if pod.phase is ExecutorPhase.FAILED:
            record = record or Record()
            if record.seen != pod.uid:
                records[pod.slot] = _struck(record, pod.uid, now)
        elif record is not None and pod.phase is ExecutorPhase.READY:
            since = record.serving_since if record.serving_since is not None else now
            if now - since >= CLEAN_AFTER_S:
                del records[pod.slot]
            else:
                records[pod.slot] = replace(record, serving_since=since)
    # A slot that was scaled away and never came back is forgotten in the end.
    kept = {slot: record for slot, record in records.items() if now - record.until < _FORGOTTEN_AFTER_S}
    return Backoff(kept)


def _struck(record: Record, uid: str, now: float) -> Record:
    strikes = min(_MOST_STRIKES, record.strikes + 1)
    return Record(strikes=strikes, until=now + growing_wait_s(strikes - 1), seen=uid)
