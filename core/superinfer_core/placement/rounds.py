"""Planning round after round: whole snapshots in, whole plans out, worked out by difference.

Promise: a plan is as valid, and says as much, as `planner.plan` of the same snapshot; no executor that is
well is moved for having been planned this way. Only what changed is looked at: an index is kept from round to
round, and what it leaves out, because nothing happened to it, is what was said last. Level-triggered all the
same: what was planned and did not come about is missing in the next snapshot, and is planned again. After an
exception the next plan begins from a whole snapshot. One owner; one plan at a time, in any thread.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from superinfer_core.placement.index import Change, PlacementIndex
from superinfer_core.placement.outcome import Flagged, Kept, Plan
from superinfer_core.placement.snapshot import ForeignUse, Snapshot

_T = TypeVar("_T")


def difference(before: Snapshot, after: Snapshot) -> Change:
    """What is another in `after`: objects that are the same or equal are left out."""
    nodes, gone_nodes = _changed(before.nodes, after.nodes, lambda node: node.name)
    pools, gone_pools = _changed(before.pools, after.pools, lambda pool: pool.key)
    executors, gone_executors = _changed(before.executors, after.executors, lambda one: one.name)
    return Change(
        nodes=nodes,
        pools=pools,
        executors=executors,
        foreign=_foreign(before, after),
        gone_nodes=gone_nodes,
        gone_pools=gone_pools,
        gone_executors=gone_executors,
    )


def _changed(
    before: Iterable[_T], after: Iterable[_T], name: Callable[[_T], str]
) -> tuple[tuple[_T, ...], tuple[str, ...]]:
    left = {name(one): one for one in before}
    changed = []
    for one in after:
        known = left.pop(name(one), None)
        if known is not one and known != one:
            changed.append(one)
    return tuple(changed), tuple(left)


def _foreign(before: Snapshot, after: Snapshot) -> Mapping[str, tuple[ForeignUse, ...]]:
    if before.foreign is after.foreign:
        return {}
    old, new = _by_node(before.foreign), _by_node(after.foreign)
    found = {name: tuple(uses) for name, uses in new.items() if old.get(name) != uses}
    return found | dict.fromkeys(old.keys() - new.keys(), ())


def _by_node(uses: Iterable[ForeignUse]) -> dict[str, list[ForeignUse]]:
    found: dict[str, list[ForeignUse]] = {}
    for use in uses:
        found.setdefault(use.node, []).append(use)
    return found


@dataclass(slots=True, eq=False)
class _Said:
    """What was said last of a pool's executors that stay."""

    keep: list[Kept] = field(default_factory=list)
    flagged: list[Flagged] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Known:
    """All that is kept from one round to the next."""

    index: PlacementIndex
    snapshot: Snapshot
    said: dict[str, _Said]


class RoundPlanner:
    """See the module."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def plan(self, snapshot: Snapshot, now: float) -> Plan:
        """The plan for a snapshot; its `memory` counts where there is no round before it."""
        # What breaks off halfway is not to be built on.
        known, self._known = self._known, None
        if known is None or _is_another_world(known.snapshot, snapshot):
            index, said = PlacementIndex(snapshot), {}
        else:
            index, said = known.index, known.said
            index.apply(difference(known.snapshot, snapshot))
        made = index.plan(now)
        _take_in(said, made, index)
        self._known = _Known(index, snapshot, said)
        every = [said[key] for key in sorted(said)]
        return replace(
            made,
            keep=tuple([kept for one in every for kept in one.keep]),
            flagged=tuple([flagged for one in every for flagged in one.flagged]),
        )


def _take_in(said: dict[str, _Said], made: Plan, index: PlacementIndex) -> None:
    """Put what a plan of the index says of pools in the place of what was said of them before."""
    fresh: dict[str, _Said] = {key: _Said() for key in index.decided}
    for kept in made.keep:
        pool = kept.assignment.pool
        # Of a pool that only got room for more, everything but its executors is as it was.
        one = fresh.setdefault(pool, _Said(flagged=said[pool].flagged if pool in said else []))
        one.keep.append(kept)
    for flagged in made.flagged:
        fresh[flagged.pool].flagged.append(flagged)
    for key, one in fresh.items():
        if one.keep:
            said[key] = one
        else:
            said.pop(key, None)


def _is_another_world(before: Snapshot, after: Snapshot) -> bool:
    """Whether what an index is built on has changed."""
    return (before.settings, before.typical, before.labels) != (after.settings, after.typical, after.labels)
