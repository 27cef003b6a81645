"""Placement: executors of pools on chiplets.

`plan(snapshot, now)` is the whole of it; the modules beside it are its types and its parts. Pure: no I/O, no
clock, no randomness.
"""

from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.node import Gpu, Health, Link, MigInstance, MigProfile, Node, Taint, Topology
from superinfer_core.placement.outcome import (
    Assignment,
    Chiplet,
    Constraint,
    Ended,
    EndReason,
    Flagged,
    Kept,
    NodeRefusal,
    Plan,
    Unplaced,
)
from superinfer_core.placement.planner import plan
from superinfer_core.placement.snapshot import (
    ExecutorPhase,
    ForeignUse,
    HoldDown,
    PlannerMemory,
    PlannerSettings,
    RunningExecutor,
    Snapshot,
)

__all__ = [
    "Assignment",
    "Chiplet",
    "ChipletDemand",
    "Constraint",
    "EndReason",
    "Ended",
    "ExecutorPhase",
    "Flagged",
    "ForeignUse",
    "Gpu",
    "Health",
    "HoldDown",
    "Kept",
    "Link",
    "MigInstance",
    "MigProfile",
    "Node",
    "NodeRefusal",
    "Plan",
    "PlannerMemory",
    "PlannerSettings",
    "PoolDemand",
    "RunningExecutor",
    "Snapshot",
    "Taint",
    "Topology",
    "Unplaced",
    "plan",
]
