"""The only module that uses OR-Tools, and only when a repacking is asked for.

Promise: deterministic for a given version of OR-Tools: one worker, a fixed seed, and a bound on its own
measure of work instead of the clock.
"""

from typing import Any

from superinfer_core.placement.geometry import COMPUTE_SLICES
from superinfer_core.placement.packing import Cell, Gpu, Item, Option, Problem


class SolverMissing(RuntimeError):
    """OR-Tools is not installed."""


def solve(problem: Problem, *, work: float, max_moves: int, worth: float) -> list[tuple[Item, Option]]:
    """Spots for items that have none and new spots for those that move; empty where nothing is gained."""
    cp_model = _cp_model()
    model = cp_model.CpModel()
    moved = [(item, _choices(model, item)) for item in problem.movable]
    placed = [(item, _choices(model, item)) for item in problem.items]
    for _, choices in (*moved, *placed):
        model.add_at_most_one(variable for variable, _ in choices)
    _cells(model, moved, placed)
    _compute(model, problem, moved, placed)
    _room(model, problem, moved, placed)
    moves = [variable for _, choices in moved for variable, _ in choices]
    model.add(sum(moves) <= max_moves)
    gained = sum(item.size * variable for item, choices in placed for variable, _ in choices)
    carried = sum(item.size * variable for item, choices in moved for variable, _ in choices)
    model.add(100 * carried <= int(100 * worth) * gained)
    # What finds a place counts first, then how little is moved for it.
    weight = 1 + sum(item.size for item in problem.movable)
    model.maximize(weight * gained - carried)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return []
    return [
        (item, option)
        for item, choices in (*moved, *placed)
        for variable, option in choices
        if solver.value(variable)
    ]


_Choices = list[tuple[Any, Option]]
_Chosen = list[tuple[Item, _Choices]]


def _choices(model: Any, item: Item) -> _Choices:
    return [
        (model.new_bool_var(f"{item.name}@{number}"), option) for number, option in enumerate(item.options)
    ]


def _cells(model: Any, moved: _Chosen, placed: _Chosen) -> None:
    """A cell has one owner: who stays, or one newcomer. Moves only go to cells that are free now."""
    takers: dict[Cell, list[Any]] = {}
    for _, choices in (*moved, *placed):
        for variable, option in choices:
            for cell in option.cells:
                takers.setdefault(cell, []).append(variable)
    homes = {cell: choices for item, choices in moved if item.home is not None for cell in item.home.cells}
    for cell, variables in takers.items():
        leaving = homes.get(cell)
        if leaving is None:
            model.add_at_most_one(variables)
        else:
            model.add(sum(variables) <= sum(variable for variable, _ in leaving))


def _compute(model: Any, problem: Problem, moved: _Chosen, placed: _Chosen) -> None:
    """Seven compute slices a GPU, also while movers are still where they were."""
    for gpu, used in problem.compute_used.items():
        arriving, new = _slices(moved, gpu), _slices(placed, gpu)
        leaving = [
            slices * variable
            for item, choices in moved
            if item.home is not None
            for at, slices in item.home.compute
            if at == gpu
            for variable, _ in choices
        ]
        if arriving:
            model.add(used + sum(arriving) <= COMPUTE_SLICES)
        if new:
            model.add(used + sum(arriving) + sum(new) - sum(leaving) <= COMPUTE_SLICES)


def _room(model: Any, problem: Problem, moved: _Chosen, placed: _Chosen) -> None:
    """CPU, memory and counted devices of every node, also while movers are still where they were."""
    for (node, resource), free in problem.room.items():
        arriving, new = _taken(moved, node, resource), _taken(placed, node, resource)
        leaving = [
            amount * variable
            for item, choices in moved
            if item.home is not None and item.home.node == node
            for name, amount in item.needs
            if name == resource
            for variable, _ in choices
        ]
        if arriving:
            model.add(sum(arriving) <= max(0, free))
        if new:
            model.add(sum(arriving) + sum(new) - sum(leaving) <= max(0, free))


def _slices(chosen: _Chosen, gpu: Gpu) -> list[Any]:
    return [
        slices * variable
        for _, choices in chosen
        for variable, option in choices
        for at, slices in option.compute
        if at == gpu
    ]


def _taken(chosen: _Chosen, node: str, resource: str) -> list[Any]:
    return [
        amount * variable
        for item, choices in chosen
        for name, amount in item.needs
        if name == resource
        for variable, option in choices
        if option.node == node
    ]


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        msg = "repacking needs OR-Tools: install superinfer-core[solver]"
        raise SolverMissing(msg) from error
    return cp_model
