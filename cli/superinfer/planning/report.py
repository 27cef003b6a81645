"""A plan as JSON and as tables."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from superinfer.output import console
from superinfer.planning.documents import World
from superinfer.planning.outlook import Outlook
from superinfer_core.api.v1alpha1.pool_status import MemoryCheck
from superinfer_core.placement import Assignment, Ended, Plan, Unplaced
from superinfer_core.placement.repack import Repacking
from superinfer_core.placement.shapes import ShapeOffer

SHOWN_NODES = 5


def plan_json(world: World, ahead: Outlook) -> dict[str, Any]:
    """The plan as one document; `pools` has the status the operator would write into each."""
    made = ahead.plan
    return {
        "complete": not made.unplaced and not made.flagged,
        "create": [_assignment_json(one) for one in made.create],
        "keep": [{"executor": one.name, **_assignment_json(one.assignment)} for one in made.keep],
        "drain": [_ended_json(one) for one in made.drain],
        "delete": [_ended_json(one) for one in made.delete],
        "unplaced": [_unplaced_json(one) for one in made.unplaced],
        "flagged": [
            {"executor": one.name, "pool": one.pool, "reason": one.constraint.value, "message": one.message}
            for one in made.flagged
        ],
        "advice": [
            {
                "node": one.node,
                "device": one.device,
                "config": one.config,
                "profiles": list(one.profiles),
                "pools": list(one.pools),
                "message": one.message,
            }
            for one in made.advice
        ],
        "not_accepted": [
            {"pool": setup.key, "reason": setup.refusal.reason.value, "message": setup.refusal.message}
            for setup in ahead.setups.values()
            if setup.refusal is not None
        ],
        "ignored": world.ignored,
        "pools": {key: _timeless(status) for key, status in ahead.statuses.items()},
    }


def _timeless(status: dict[str, Any]) -> dict[str, Any]:
    """Without the times of what has not happened."""
    conditions = [
        {name: value for name, value in condition.items() if name != "lastTransitionTime"}
        for condition in status.get("conditions") or ()
    ]
    return {**status, "conditions": conditions}


def offers_json(offers: Sequence[ShapeOffer]) -> list[dict[str, Any]]:
    """The trade-offs of one contract."""
    return [
        {
            "shape": one.option.name,
            "on_front": one.on_front,
            "feasible": one.feasible,
            "reason": one.reason,
            "executors": one.executors,
            "gpus": one.gpus,
            "latency_margin": one.margin,
            "tightest": one.tightest.value if one.tightest is not None else None,
            "loss_share": one.loss_share,
            "nodes_with_room": one.option.domains,
            "measured": one.option.measured,
        }
        for one in offers
    ]


def repacking_json(found: Repacking | None) -> dict[str, Any] | None:
    """Moves that would make room."""
    if found is None:
        return None
    return {
        "moves": [_assignment_json(one) for one in found.moves],
        "placed": dict(found.placed),
        "slices_gained": found.slices_gained,
        "slices_moved": found.slices_moved,
    }


def _assignment_json(one: Assignment) -> dict[str, Any]:
    chiplet = one.chiplet
    return {
        "pool": one.pool,
        "slot": one.slot,
        "node": one.node,
        "resource": chiplet.resource,
        "count": chiplet.count,
        "devices": list(chiplet.devices),
        "profile": chiplet.profile,
        "gpu": chiplet.gpu or None,
        "start": chiplet.start,
        "fault_domain": list(one.fault_domain),
        "peer": one.peer,
        "replaces": one.replaces or None,
    }


def _ended_json(one: Ended) -> dict[str, Any]:
    return {"executor": one.name, "pool": one.pool, "reason": one.reason.value, "message": one.message}


def _unplaced_json(one: Unplaced) -> dict[str, Any]:
    return {
        "pool": one.pool,
        "count": one.count,
        "reason": one.reason.value,
        "message": one.message,
        "refusals": [
            {"constraint": r.constraint.value, "message": r.message, "nodes": list(r.nodes)}
            for r in one.refusals
        ],
        "layouts": dict(one.layouts),
    }


def print_plan(world: World, ahead: Outlook) -> None:
    """The plan for people."""
    _print_placement(ahead.plan)
    for key, status in ahead.statuses.items():
        _print_hardware(key, status)
    for setup in ahead.setups.values():
        if setup.refusal is not None:
            _bad(f"{setup.key}: not accepted: {setup.refusal.message}")
    if world.ignored:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(world.ignored.items()))
        console.print(f"not looked at: {told}", style="dim", markup=False)


def _print_hardware(key: str, status: dict[str, Any]) -> None:
    """What the pool's status says of memory and shapes, in its words."""
    memory = status.get("memory")
    if memory is not None:
        style = "yellow" if memory["check"] == MemoryCheck.NOT_STATED else ""
        console.print(f"{key}: memory {memory['check']}: {memory['message']}", style=style, markup=False)
    if (message := status.get("shapesMessage")) is not None:
        console.print(f"{key}: shapes: {message}", markup=False)
    if not status.get("shapes"):
        return
    table = _table("shape", "speed", "executors", "GPUs each", "latency margin", "nodes", "lost with a node")
    for one in status["shapes"]:
        tightest = f" ({one['tightest']})" if one.get("tightest") else ""
        table.add_row(
            one["shape"],
            one["speed"],
            str(one["executors"]),
            one["gpusPerExecutor"],
            f"{one['latencyMarginPercent']} %{tightest}",
            str(one["nodes"]),
            f"{one['lostWithANodePercent']} %",
        )
    console.print(table)


def _print_placement(made: Plan) -> None:
    rows = [("create", one) for one in made.create] + [("keep", one.assignment) for one in made.keep]
    if rows:
        table = _table("", "pool", "slot", "node", "chiplet", "devices", "peer")
        for verb, one in sorted(rows, key=lambda row: (row[1].pool, row[1].slot, row[0])):
            table.add_row(
                verb,
                one.pool,
                str(one.slot),
                one.node,
                _chiplet(one),
                ", ".join(one.chiplet.devices) or "-",
                "-" if one.peer is None else str(one.peer),
            )
        console.print(table)
    for verb, ended in [("drain", e) for e in made.drain] + [("delete", e) for e in made.delete]:
        console.print(f"{verb} {ended.name}: {ended.reason.value}: {ended.message}", markup=False)
    for unplaced in made.unplaced:
        _bad(f"{unplaced.pool}: {unplaced.reason.value}: {unplaced.message}")
        for refusal in unplaced.refusals:
            names = ", ".join(refusal.nodes[:SHOWN_NODES])
            more = f" and {len(refusal.nodes) - SHOWN_NODES} more" if len(refusal.nodes) > SHOWN_NODES else ""
            console.print(f"    {refusal.constraint.value}: {names}{more}: {refusal.message}", markup=False)
    for flagged in made.flagged:
        _bad(f"{flagged.name}: {flagged.constraint.value}: {flagged.message}")
    for advice in made.advice:
        what = advice.config or f"instances {', '.join(advice.profiles)}"
        where = "nvidia.com/mig.config" if advice.config else advice.device
        console.print(f"advice: node {advice.node}: {where} = {what} {advice.message}", markup=False)


def print_repacking(found: Repacking | None) -> None:
    """Moves that would make room, for people."""
    if found is None:
        console.print("repacking: no moves are worth it")
        return
    placed = ", ".join(f"{count} of {key}" for key, count in sorted(found.placed.items()))
    console.print(
        f"repacking: {len(found.moves)} moves ({found.slices_moved} slices) would make room for {placed} "
        f"({found.slices_gained} slices)",
        markup=False,
    )
    for one in found.moves:
        devices = ", ".join(one.chiplet.devices)
        console.print(f"    {one.replaces} -> {one.node} {devices}", markup=False)


def print_offers(contract: str, offers: Sequence[ShapeOffer]) -> None:
    """The trade-offs of one contract for people."""
    console.print(f"\nshapes for {contract} (* = no other is better all in all):", markup=False)
    table = _table("", "shape", "executors", "GPUs", "latency margin", "lost with a node", "speed", "")
    for one in offers:
        tightest = f" ({one.tightest.value})" if one.tightest is not None else ""
        table.add_row(
            "*" if one.on_front else "",
            one.option.name,
            str(one.executors),
            f"{one.gpus:g}",
            f"{one.margin:.0%}{tightest}",
            f"{one.loss_share:.0%}",
            "measured" if one.option.measured else "estimated",
            one.reason,
        )
    console.print(table)


def _bad(line: str) -> None:
    console.print(line, style="red", markup=False)


def _chiplet(one: Assignment) -> str:
    if one.chiplet.profile:
        return one.chiplet.profile
    return f"{one.chiplet.count} x GPU" if one.chiplet.count else "CPU"


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading in headings:
        table.add_column(heading)
    return table
