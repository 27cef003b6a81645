"""Planning round after round says what planning every snapshot anew would say."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from placement_cases import UNHEALTHY, gpu, pool, random_nodes, random_pools, switched
from placement_turns import KINDS, random_turns, turn
from placement_world import World, check_valid

from superinfer_core.placement import plan
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.index import Change
from superinfer_core.placement.node import Node
from superinfer_core.placement.outcome import Plan
from superinfer_core.placement.rounds import RoundPlanner, difference
from superinfer_core.placement.snapshot import ExecutorPhase, ForeignUse, Snapshot

NOW = 1000.0


def stays(made: Plan) -> dict[str, object]:
    """What runs on, where and on what."""
    return {kept.name: replace(kept.assignment, peer=None) for kept in made.keep}


def ends(made: Plan) -> list[tuple[str, str, bool]]:
    return sorted((ended.name, ended.reason.value, ended.force) for ended in (*made.drain, *made.delete))


def lacking(made: Plan) -> int:
    """Executors that were missing: those that get a place now, and those that do not."""
    return len(made.create) + sum(one.count for one in made.unplaced)


def check_said_as_well(made: Plan, full: Plan, world: World) -> None:
    """Nothing moves that would not have, and nothing is left unsaid."""
    assert ends(made) == ends(full)
    assert stays(made) == stays(full)
    assert sorted(made.flagged, key=lambda one: one.name) == sorted(full.flagged, key=lambda one: one.name)
    assert (made.memory, made.wake_at) == (full.memory, full.wake_at)
    assert {one.pool for one in made.unplaced} == {one.pool for one in full.unplaced}
    for one in made.unplaced:
        assert sorted(name for refusal in one.refusals for name in refusal.nodes) == sorted(
            node.name for node in world.nodes
        )
        assert one.message
    # Where pools compete, which of them gets room may differ; how many executors lack it may not.
    assert lacking(made) == lacking(full)


@settings(max_examples=60)
@given(random_nodes(), random_pools(), random_pools(8), random_turns((*KINDS, "wait", "copy", "start")))
def test_every_round_is_as_good_as_planning_anew(
    nodes: tuple[Node, ...],
    pools: tuple[PoolDemand, ...],
    spare: tuple[PoolDemand, ...],
    turns: list[tuple[str, int]],
) -> None:
    spare = tuple(replace(one, key=f"{one.key}-spare") for one in spare)
    world, rounds, now = World(nodes, pools, starts_ready=False), RoundPlanner(), NOW
    for kind, which in [("start", 0), *turns]:
        now += 15.0 * which if kind == "wait" else 1.0
        turn(world, kind, which, spare, now)
        if kind == "copy":
            # What is gathered anew is another object with the same words.
            world.executors = {name: replace(one) for name, one in world.executors.items()}
            world.nodes = tuple(replace(node) for node in world.nodes)
        elif kind == "start":
            for name in world.executors:
                world.change(name, phase=ExecutorPhase.READY)
        full, made = plan(world.snapshot(), now), rounds.plan(world.snapshot(), now)
        check_said_as_well(made, full, world)
        # Some of what is planned does not come about, or not at once.
        world.do(replace(made, create=made.create[which % 3 :]))
        check_valid(world)


@settings(max_examples=30)
@given(random_nodes(), random_pools())
def test_pools_that_come_later_find_the_places_they_would_have_found(
    nodes: tuple[Node, ...], pools: tuple[PoolDemand, ...]
) -> None:
    rounds = RoundPlanner()
    rounds.plan(Snapshot(nodes, ()), NOW)
    later, full = rounds.plan(Snapshot(nodes, pools), NOW), plan(Snapshot(nodes, pools), NOW)
    assert sorted(later.create, key=lambda one: (one.pool, one.slot)) == sorted(
        full.create, key=lambda one: (one.pool, one.slot)
    )


def test_what_was_planned_and_did_not_come_about_is_planned_again() -> None:
    world, rounds = World((switched("a"),), (pool("one", 2, gpu()),)), RoundPlanner()
    first = rounds.plan(world.snapshot(), NOW)
    assert rounds.plan(world.snapshot(), NOW + 1).create == first.create
    world.do(first)
    settled = rounds.plan(world.snapshot(), NOW + 2)
    assert not settled.create
    assert len(settled.keep) == 2


def test_after_a_failure_planning_begins_anew() -> None:
    world, rounds = World((switched("a"),), (pool("one", 2, gpu()),)), RoundPlanner()
    world.do(rounds.plan(world.snapshot(), NOW))
    broken = replace(world.pools[0], replicas="two")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        rounds.plan(replace(world.snapshot(), pools=(broken,)), NOW)
    assert rounds.plan(world.snapshot(), NOW) == plan(world.snapshot(), NOW)


def test_a_hold_down_from_before_a_restart_ends_in_time() -> None:
    node = switched("a", gpus=1)
    world, rounds = World((node,), (pool("one", 1, gpu()),)), RoundPlanner()
    assert node.topology is not None
    sick = replace(node.topology.gpus[0], health=UNHEALTHY)
    world.nodes = (replace(node, topology=replace(node.topology, gpus=(sick,))),)
    world.memory = rounds.plan(world.snapshot(), NOW).memory
    world.nodes = (node,)
    world.memory = rounds.plan(world.snapshot(), NOW + 1).memory
    restarted = RoundPlanner()
    held = restarted.plan(world.snapshot(), NOW + 2)
    assert not held.create
    assert held.wake_at is not None
    assert restarted.plan(world.snapshot(), held.wake_at).create


def test_a_difference_names_what_changed_and_nothing_else() -> None:
    a, b, c = switched("a"), switched("b"), switched("c")
    one, two = pool("one", 1, gpu()), pool("two", 1, gpu())
    cpu = ForeignUse("a", "cpu", 5)
    before = Snapshot((a, b), (one, two), foreign=(cpu, ForeignUse("b", "cpu", 5)))
    cordoned = replace(b, schedulable=False)
    after = Snapshot((replace(a), cordoned, c), (replace(one),), foreign=(replace(cpu),))
    assert difference(before, after) == Change(nodes=(cordoned, c), foreign={"b": ()}, gone_pools=("ns/two",))
    assert difference(before, before) == Change()
