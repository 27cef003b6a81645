"""Repacking: moves of running executors that make room for executors that have none.

Promise: never worse than what the planner finds without moves: a repacking is worked out by a solver, tried
on a copied snapshot with the planner itself, and handed out only if more fits then. Every target is free now,
so an executor moves by starting beside itself; the moves are bounded in number, and in size by what they make
room for. Deterministic: the solver is bounded by its own measure of work, not by a clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from superinfer_core.placement.index import PlacementIndex
from superinfer_core.placement.outcome import Assignment, Plan
from superinfer_core.placement.packing import Item, build_problem, gpu_kinds, move_of, size_of
from superinfer_core.placement.snapshot import ExecutorPhase, RunningExecutor, Snapshot
from superinfer_core.placement.solver import solve


@dataclass(frozen=True, slots=True)
class RepackLimits:
    """How far repacking may go.

    Attributes:
        work: the solver's deterministic measure, about seconds of one core.
        max_moves: executors moved at once.
        worth: slices moved for each slice made room for, at most.
        max_nodes, max_unplaced: size of the part of the cluster that is looked at.
    """

    work: float = 5.0
    max_moves: int = 8
    worth: float = 1.0
    max_nodes: int = 24
    max_unplaced: int = 16


@dataclass(frozen=True, slots=True)
class Repacking:
    """Moves and what they are good for.

    Attributes:
        moves: where the new executor of each slot goes; `replaces` names the one that goes on until then.
        placed: executors that find a place afterwards, by pool.
        slices_gained, slices_moved: their sizes, in memory slices.
    """

    moves: tuple[Assignment, ...]
    placed: Mapping[str, int]
    slices_gained: int
    slices_moved: int


def repack(snapshot: Snapshot, now: float, limits: RepackLimits | None = None) -> Repacking | None:
    """Moves that make room for what has no place; None where none are worth it.

    Raises:
        SolverMissing: the solver is not installed (superinfer-core[solver]).
    """
    limits = limits or RepackLimits()
    index = PlacementIndex(snapshot)
    before = index.plan(now)
    if not before.unplaced or before.drain or before.delete or before.create:
        # Something simpler is under way; what it changes would be planned for twice.
        return None
    problem = build_problem(index, before, max_nodes=limits.max_nodes, max_unplaced=limits.max_unplaced)
    if not problem.items or not problem.movable:
        return None
    chosen = solve(problem, work=limits.work, max_moves=limits.max_moves, worth=limits.worth)
    moves = [(item, option) for item, option in chosen if item.executor is not None]
    if not moves:
        return None
    assignments = tuple(move_of(index, item, option) for item, option in moves)
    return _tried(snapshot, now, before, assignments, [item for item, _ in moves])


def _tried(
    snapshot: Snapshot, now: float, before: Plan, moves: Sequence[Assignment], items: Sequence[Item]
) -> Repacking | None:
    """The moves with what the planner makes of the cluster after them, if that is more."""
    target = {move.replaces: move for move in moves}
    moved = tuple(
        _moved(executor, target[executor.name]) if executor.name in target else executor
        for executor in snapshot.executors
    )
    index = PlacementIndex(replace(snapshot, executors=moved))
    after = index.plan(now)
    if after.drain or after.delete:
        return None
    pools = {pool.key: pool for pool in snapshot.pools}
    left = {one.pool: one.count for one in after.unplaced}
    placed = {
        one.pool: one.count - left.get(one.pool, 0)
        for one in before.unplaced
        if one.count > left.get(one.pool, 0)
    }
    kinds = gpu_kinds(index)
    gained = sum(size_of(pools[key], kinds) * count for key, count in placed.items())
    worse = any(left[key] > _count(before, key) for key in left)
    if gained <= 0 or worse:
        return None
    return Repacking(tuple(moves), placed, gained, sum(item.size for item in items))


def _moved(executor: RunningExecutor, move: Assignment) -> RunningExecutor:
    return replace(
        executor,
        node=move.node,
        planned_devices=move.chiplet.devices,
        devices=move.chiplet.devices,
        phase=ExecutorPhase.READY,
    )


def _count(plan: Plan, pool: str) -> int:
    return sum(one.count for one in plan.unplaced if one.pool == pool)
