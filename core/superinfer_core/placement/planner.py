"""`plan(snapshot, now)`: what runs where."""

from superinfer_core.placement.outcome import Plan
from superinfer_core.placement.snapshot import Snapshot


def plan(snapshot: Snapshot, now: float) -> Plan:
    """The plan for a snapshot."""
    raise NotImplementedError
