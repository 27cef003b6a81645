"""`plan(snapshot, now)`: what runs where."""

from superinfer_core.placement.index import PlacementIndex
from superinfer_core.placement.outcome import Plan
from superinfer_core.placement.snapshot import Snapshot


def plan(snapshot: Snapshot, now: float) -> Plan:
    """The plan for a snapshot: executors to create, keep, drain and delete, and why others have no place.

    Pure and deterministic; the order of the snapshot's tuples does not matter. For a what-if, plan a changed
    copy. Where the same world is planned again and again, `PlacementIndex` does it by difference.
    """
    return PlacementIndex(snapshot).plan(now)
