"""Moves running executors to make room for executors that have none, where the administrator allows it.

Off unless asked for: moving costs a healthy executor its place. Promise: only while nothing else is under
way, not oftener than every few minutes, and a moved executor serves until the new one does (the planner ends
the old one then). What is moved, and what for, is core's decision. One task; the solver runs in a thread.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from superinfer_core.placement import ExecutorPhase, Plan, Snapshot
from superinfer_core.placement.repack import Repacking, repack
from superinfer_core.placement.solver import SolverMissing

_log = logging.getLogger("superinfer.operator")

REST_S: Final = 300.0
"""Between two tries: whoever was moved has to settle first."""


class Repacker:
    """Tries to make room, now and then."""

    def __init__(self) -> None:
        self._tried_at = float("-inf")
        self.next_at: float | None = None
        """When to try again; None where nothing waits for room."""

    async def moves(self, snapshot: Snapshot, plan: Plan, now: float) -> Repacking | None:
        """Moves worth making now, if there are any."""
        if not plan.unplaced or plan.changes or not is_calm(snapshot):
            self.next_at = None
            return None
        self.next_at = self._tried_at + REST_S
        if now < self.next_at:
            return None
        self._tried_at, self.next_at = now, now + REST_S
        try:
            return await asyncio.to_thread(repack, snapshot, now)
        except SolverMissing as missing:
            _log.error("no repacking: %s", missing)
            return None


def is_calm(snapshot: Snapshot) -> bool:
    """Every executor serves and none is going: what is known of free hardware will still hold in a minute."""
    return all(
        executor.phase is ExecutorPhase.READY and not executor.terminating for executor in snapshot.executors
    )


def told(repacking: Repacking, pool: str) -> str:
    """What is moved of a pool, and whom it makes room for."""
    moved: Sequence[str] = [
        f"{move.replaces.rpartition('/')[2]} to {move.node}" for move in repacking.moves if move.pool == pool
    ]
    helped = ", ".join(f"{count} of {key}" for key, count in sorted(repacking.placed.items()))
    return f"moving {', '.join(moved)}: makes room for {helped}"
