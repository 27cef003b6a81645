"""What must hold whatever the cluster looks like."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from placement_cases import random_nodes, random_pools
from placement_world import World, check_valid

from superinfer_core.placement import plan
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.node import Node
from superinfer_core.placement.snapshot import Snapshot

NOW = 100.0

worlds = st.builds(World, random_nodes(), random_pools())


@settings(max_examples=50)
@given(worlds)
def test_no_device_is_given_twice_and_no_constraint_is_broken(world: World) -> None:
    world.step(NOW)
    check_valid(world)


@settings(max_examples=50)
@given(worlds)
def test_a_plan_that_was_done_leaves_nothing_to_do(world: World) -> None:
    first = world.step(NOW)
    again = plan(world.snapshot(), NOW)
    assert not again.changes, (again.create, again.drain, again.delete)
    assert {u.pool: u.count for u in again.unplaced} == {u.pool: u.count for u in first.unplaced}
    assert {kept.name for kept in again.keep} == set(world.executors)


@settings(max_examples=50)
@given(worlds, st.randoms(use_true_random=False))
def test_the_order_of_the_snapshot_does_not_matter(world: World, random: object) -> None:
    snapshot = world.snapshot()
    nodes, pools = list(snapshot.nodes), list(snapshot.pools)
    random.shuffle(nodes)  # type: ignore[attr-defined]
    random.shuffle(pools)  # type: ignore[attr-defined]
    assert plan(replace(snapshot, nodes=tuple(nodes), pools=tuple(pools)), NOW) == plan(snapshot, NOW)


@settings(max_examples=50)
@given(worlds)
def test_every_executor_has_a_place_or_a_reason_on_every_node(world: World) -> None:
    made = plan(world.snapshot(), NOW)
    for pool in world.pools:
        created = sum(a.pool == pool.key for a in made.create)
        missing = [u for u in made.unplaced if u.pool == pool.key]
        assert created + sum(u.count for u in missing) == pool.replicas
        for unplaced in missing:
            told = [name for refusal in unplaced.refusals for name in refusal.nodes]
            assert sorted(told) == sorted(node.name for node in world.nodes)
            assert all(refusal.message for refusal in unplaced.refusals)
            assert unplaced.message.startswith("0/") or not world.nodes


@settings(max_examples=50)
@given(worlds, random_pools(2))
def test_healthy_executors_stay_where_they_are(world: World, more: tuple[PoolDemand, ...]) -> None:
    world.step(NOW)
    before = dict(world.executors)
    world.pools += tuple(replace(pool, key=f"{pool.key}-more") for pool in more)
    made = world.step(NOW)
    assert not made.drain
    assert not made.delete
    assert before.items() <= world.executors.items()
    check_valid(world)


@settings(max_examples=50)
@given(worlds, st.integers(0, 5))
def test_losing_a_node_moves_its_executors_and_no_others(world: World, which: int) -> None:
    world.step(NOW)
    if not world.nodes:
        return
    lost: Node = world.nodes[which % len(world.nodes)]
    there = {e.name for e in world.executors.values() if e.node == lost.name}
    world.nodes = tuple(node for node in world.nodes if node is not lost)
    made = world.step(NOW)
    assert {ended.name for ended in (*made.drain, *made.delete)} == there
    check_valid(world)


@settings(max_examples=50)
@given(worlds)
def test_fewer_replicas_end_just_the_surplus(world: World) -> None:
    world.step(NOW)
    before = {pool.key: sum(e.pool == pool.key for e in world.executors.values()) for pool in world.pools}
    world.pools = tuple(replace(pool, replicas=pool.replicas // 2) for pool in world.pools)
    made = world.step(NOW)
    for pool in world.pools:
        ended = sum(e.pool == pool.key for e in made.drain)
        assert ended == max(0, before[pool.key] - pool.replicas)


@given(random_nodes(), random_pools())
def test_what_if_on_a_copy_changes_nothing(nodes: tuple[Node, ...], pools: tuple[PoolDemand, ...]) -> None:
    snapshot = Snapshot(nodes, pools)
    before = plan(snapshot, NOW)
    plan(replace(snapshot, pools=tuple(replace(pool, replicas=pool.replicas + 3) for pool in pools)), NOW)
    assert plan(snapshot, NOW) == before
