"""The index kept by difference plans as validly, and explains as well, as a plan of the whole snapshot."""

from dataclasses import replace

from hypothesis import given, settings
from placement_cases import gpu, pool, random_nodes, random_pools, switched
from placement_turns import random_turns, turn
from placement_world import World, check_valid

from superinfer_core.placement import plan
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.index import Change, PlacementIndex
from superinfer_core.placement.node import Node
from superinfer_core.placement.outcome import Plan
from superinfer_core.placement.refusals import Explanation

NOW = 1000.0
TURNS = ("cordon", "sicken", "remove", "add", "scale", "more", "drop", "revise")


def _difference(world: World, before: World, index: PlacementIndex) -> Change:
    nodes, old_nodes = ({n.name: n for n in w.nodes} for w in (world, before))
    pools, old_pools = ({p.key: p for p in w.pools} for w in (world, before))
    return Change(
        nodes=tuple(n for name, n in nodes.items() if old_nodes.get(name) is not n),
        pools=tuple(p for key, p in pools.items() if old_pools.get(key) is not p),
        executors=tuple(e for name, e in world.executors.items() if index.executors.get(name) is not e),
        gone_nodes=tuple(old_nodes.keys() - nodes.keys()),
        gone_pools=tuple(old_pools.keys() - pools.keys()),
        gone_executors=tuple(index.executors.keys() - world.executors.keys()),
    )


def _ends(made: Plan) -> list[tuple[str, str]]:
    return sorted((ended.name, ended.reason.value) for ended in (*made.drain, *made.delete))


@settings(max_examples=60)
@given(random_nodes(), random_pools(), random_pools(8), random_turns(TURNS))
def test_changes_by_difference_are_as_good_as_planning_anew(
    nodes: tuple[Node, ...],
    pools: tuple[PoolDemand, ...],
    spare: tuple[PoolDemand, ...],
    steps: list[tuple[str, int]],
) -> None:
    spare = tuple(replace(one, key=f"{one.key}-spare") for one in spare)
    world = World(nodes, pools)
    index = PlacementIndex(world.snapshot())
    world.do(index.plan(NOW))
    for kind, which in steps:
        before = World(world.nodes, world.pools)
        turn(world, kind, which, spare)
        full = plan(world.snapshot(), NOW)
        index.apply(_difference(world, before, index))
        made = index.plan(NOW)
        assert _ends(made) == _ends(full)
        for one in made.unplaced:
            told = sorted(name for refusal in one.refusals for name in refusal.nodes)
            assert told == sorted(node.name for node in world.nodes)
            if not made.create:
                # Nothing was taken since: what was kept up to date is what would be found anew.
                asked = index.pools[one.pool]
                fresh = Explanation(index.fleet, index.fitting, asked).unplaced(one.pool, one.count)
                assert (one.reason, one.message, one.refusals) == (
                    fresh.reason,
                    fresh.message,
                    fresh.refusals,
                )
        # As many executors find a place; which ones may differ where pools compete.
        assert {u.pool for u in full.unplaced} == {u.pool for u in made.unplaced}
        world.do(made)
        world.executors = {
            name: e for name, e in world.executors.items() if e.pool in {p.key for p in world.pools}
        }
        check_valid(world)
        before = World(world.nodes, world.pools)
        index.apply(_difference(world, before, index))


def test_a_pool_nothing_happened_to_is_not_planned_again() -> None:
    world = World((switched("a"), switched("b")), (pool("one", 2, gpu()), pool("two", 2, gpu())))
    index = PlacementIndex(world.snapshot())
    world.do(index.plan(NOW))
    index.apply(Change(executors=tuple(world.executors.values())))
    index.plan(NOW)
    bigger = pool("two", 3, gpu())
    index.apply(Change(pools=(bigger,)))
    made = index.plan(NOW)
    assert {kept.assignment.pool for kept in made.keep} == {"ns/two"}
    assert [a.slot for a in made.create] == [2]


def test_planning_does_not_take_anything_until_it_is_applied() -> None:
    index = PlacementIndex(World((switched("a", gpus=2),), (pool("one", 2, gpu()),)).snapshot())
    first = index.plan(NOW)
    index.apply(Change(pools=(pool("one", 2, gpu()),)))
    assert index.plan(NOW).create == first.create
