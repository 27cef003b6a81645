"""A plan taken apart by pool. Pure."""

from dataclasses import dataclass, field

from superinfer_core.placement import Assignment, Ended, Flagged, Kept, Plan, Unplaced
from superinfer_core.placement.outcome import LayoutAdvice


@dataclass(slots=True)
class PlanPart:
    """What a plan says of one pool; filled once, then read."""

    create: list[Assignment] = field(default_factory=list)
    keep: list[Kept] = field(default_factory=list)
    drain: list[Ended] = field(default_factory=list)
    delete: list[Ended] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    flagged: list[Flagged] = field(default_factory=list)
    advice: list[LayoutAdvice] = field(default_factory=list)


def by_pool_of(plan: Plan) -> dict[str, PlanPart]:
    """The parts, by pool key."""
    parts: dict[str, PlanPart] = {}

    def part(pool: str) -> PlanPart:
        return parts.setdefault(pool, PlanPart())

    for assignment in plan.create:
        part(assignment.pool).create.append(assignment)
    for kept in plan.keep:
        part(kept.assignment.pool).keep.append(kept)
    for ended in plan.drain:
        part(ended.pool).drain.append(ended)
    for ended in plan.delete:
        part(ended.pool).delete.append(ended)
    for unplaced in plan.unplaced:
        part(unplaced.pool).unplaced.append(unplaced)
    for flagged in plan.flagged:
        part(flagged.pool).flagged.append(flagged)
    for advice in plan.advice:
        for pool in advice.pools:
            part(pool).advice.append(advice)
    return parts
