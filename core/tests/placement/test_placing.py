"""Where executors go, and the reason where they cannot."""

from dataclasses import replace

import pytest
from placement_cases import (
    A100,
    ALL_3G_H100,
    BRIDGES,
    CPU,
    H100,
    H200,
    MIXED_H100,
    bare,
    bridged,
    counted,
    cut,
    dynamic,
    gpu,
    mig,
    pair,
    pool,
    switched,
)
from placement_world import World, check_valid

from superinfer_core.api.v1alpha1.chipletpool import Allocation, FaultDomain, Interconnect
from superinfer_core.placement import Snapshot, plan
from superinfer_core.placement.demand import PoolDemand
from superinfer_core.placement.node import Node, Taint, TaintEffect, Toleration
from superinfer_core.placement.outcome import Constraint
from superinfer_core.placement.snapshot import ForeignUse
from superinfer_core.slo import Isolation

DRA = Allocation.DRA


def _nodes_of(nodes: tuple[Node, ...], *pools: PoolDemand) -> list[str]:
    return [assignment.node for assignment in plan(Snapshot(nodes, pools), 0).create]


REFUSALS = [
    ("no nodes", (), pool("p", 1, gpu()), Constraint.NO_NODES),
    ("cordoned", (replace(switched("a"), schedulable=False),), pool("p", 1, gpu()), Constraint.NODE_CORDONED),
    ("not ready", (replace(switched("a"), ready=False),), pool("p", 1, gpu()), Constraint.NODE_NOT_READY),
    (
        "selector",
        (switched("a"),),
        pool("p", 1, gpu(), node_selector={"team": "x"}),
        Constraint.SELECTOR_MISMATCH,
    ),
    (
        "taint",
        (replace(switched("a"), taints=(Taint("gpu", TaintEffect.NO_SCHEDULE, "yes"),)),),
        pool("p", 1, gpu()),
        Constraint.TAINT_NOT_TOLERATED,
    ),
    ("product", (switched("a"),), pool("p", 1, gpu(product=A100)), Constraint.WRONG_PRODUCT),
    ("no GPUs", (bare("a"),), pool("p", 1, gpu()), Constraint.NO_SUCH_DEVICE),
    ("whole GPU where all are cut", (cut("a"),), pool("p", 1, gpu()), Constraint.NO_SUCH_DEVICE),
    ("profile of another product", (cut("a"),), pool("p", 1, mig("3g.71gb")), Constraint.NO_SUCH_DEVICE),
    ("profile not in the layout", (cut("a"),), pool("p", 1, mig("7g.80gb")), Constraint.MIG_LAYOUT),
    (
        "profile not in the layout, and too small",
        (cut("a"),),
        pool("p", 1, mig("7g.80gb", memory_mib=100_000)),
        Constraint.NOT_ENOUGH_MEMORY,
    ),
    (
        "profile not in the layout, and not the whole device",
        (cut("a"),),
        pool("p", 1, mig("4g.40gb", isolation=Isolation.DEVICE)),
        Constraint.ISOLATION_UNAVAILABLE,
    ),
    (
        "memory of an instance",
        (cut("a"),),
        pool("p", 1, mig("3g.40gb", memory_mib=50_000)),
        Constraint.NOT_ENOUGH_MEMORY,
    ),
    (
        "memory of GPUs together",
        (switched("a"),),
        pool("p", 1, gpu(2, memory_mib=300_000)),
        Constraint.NOT_ENOUGH_MEMORY,
    ),
    (
        "whole device on an instance",
        (cut("a"),),
        pool("p", 1, mig("3g.40gb", isolation=Isolation.DEVICE)),
        Constraint.ISOLATION_UNAVAILABLE,
    ),
    (
        "isolation on a time-sliced GPU",
        (
            replace(
                counted("a", gpu=4),
                labels={"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.product": H100},
            ),
        ),
        pool("p", 1, gpu(isolation=Isolation.INSTANCE)),
        Constraint.ISOLATION_UNAVAILABLE,
    ),
    ("links nobody knows", (counted("a", gpu=4),), pool("p", 1, pair()), Constraint.TOPOLOGY_UNKNOWN),
    (
        "devices nobody can name",
        (counted("a", gpu=4),),
        pool("p", 1, gpu(), allocation=DRA),
        Constraint.TOPOLOGY_UNKNOWN,
    ),
    (
        "four GPUs over two bridges",
        (bridged("a"),),
        pool("p", 1, gpu(4, interconnect=Interconnect.NVLINK_REQUIRED)),
        Constraint.NO_NVLINK_GROUP,
    ),
    ("more GPUs than there are", (switched("a", gpus=2),), pool("p", 1, gpu(4)), Constraint.NO_SUCH_DEVICE),
    ("all in use", (switched("a", gpus=1),), pool("p", 2, gpu()), Constraint.DEVICES_IN_USE),
    (
        "no device plugin",
        (replace(switched("a"), allocatable={"cpu": 1}),),
        pool("p", 1, gpu()),
        Constraint.NO_SUCH_DEVICE,
    ),
    (
        "too little CPU",
        (switched("a"),),
        pool("p", 1, gpu(), requests={"cpu": 65_000}),
        Constraint.NODE_RESOURCES,
    ),
]


@pytest.mark.parametrize(
    ("nodes", "asked", "constraint"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS]
)
def test_a_refusal_names_its_constraint(
    nodes: tuple[Node, ...], asked: PoolDemand, constraint: Constraint
) -> None:
    (unplaced,) = plan(Snapshot(nodes, (asked,)), 0).unplaced
    assert unplaced.reason is constraint
    assert [name for refusal in unplaced.refusals for name in refusal.nodes] == [n.name for n in nodes]


def test_the_reason_told_is_the_one_nearest_to_being_met() -> None:
    nodes = (bare("x"), switched("a", gpus=1), replace(switched("b"), schedulable=False))
    (unplaced,) = plan(Snapshot(nodes, (pool("p", 2, gpu()),)), 0).unplaced
    assert unplaced.reason is Constraint.DEVICES_IN_USE
    assert unplaced.message == (
        "0/3 nodes can take one more executor: 1 with 0 free GPUs (1 asked for), 1 without GPUs, 1 cordoned"
    )


def test_a_pair_gets_two_bridged_gpus_that_are_not_neighbours() -> None:
    world = World((bridged("a"),), (pool("p", 4, pair()),))
    world.step()
    held = sorted(tuple(int(d[-1]) for d in e.held_devices) for e in world.executors.values())
    assert held == sorted(BRIDGES)


def test_a_single_gpu_does_not_tear_a_pair_while_a_torn_one_is_left() -> None:
    world = World((bridged("a"),), (pool("p", 2, gpu()), pool("q", 3, pair())))
    world.step()
    assert len(world.executors) == 5


def test_single_gpus_go_where_no_group_can_be_broken() -> None:
    nodes = (switched("a"), switched("b", gpus=1))
    world = World(nodes, (pool("big", 0, gpu(8)), pool("p", 1, gpu())))
    world.pools = (replace(world.pools[0], replicas=0), world.pools[1])
    snapshot = replace(world.snapshot(), typical=((gpu(8), 1), (gpu(), 1)))
    assert [a.node for a in plan(snapshot, 0).create] == ["b"]


def test_a_small_instance_goes_where_the_large_ones_lose_least() -> None:
    # A driver left alone would put it at slice 0 and so spoil 4g and 7g, or a second 3g.
    snapshot = Snapshot(
        (dynamic("d", gpus=1),),
        (pool("p", 1, mig("1g.10gb"), allocation=DRA), pool("q", 1, mig("4g.40gb"), allocation=DRA)),
    )
    made = plan(snapshot, 0)
    assert not made.unplaced
    starts = {a.pool: a.chiplet.start for a in made.create}
    assert starts["ns/q"] == 0
    assert (starts["ns/p"] or 0) >= 4


def test_instances_made_on_demand_are_laid_so_that_all_fit() -> None:
    # 1g, 1g, 2g, 3g one after the other fail with the driver's own placement.
    names = ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")
    pools = tuple(pool(f"p{number}", 1, mig(name), allocation=DRA) for number, name in enumerate(names))
    world = World((dynamic("d", gpus=1),), pools)
    assert not world.step().unplaced
    check_valid(world)


def test_a_dynamic_gpu_in_use_is_filled_before_an_idle_one() -> None:
    world = World((dynamic("d", gpus=3),), (pool("p", 3, mig("2g.20gb"), allocation=DRA, spread=()),))
    world.step()
    assert len({e.held_devices[0].partition(":")[0] for e in world.executors.values()}) == 1


SPREADS = [
    ("nodes", (FaultDomain.NODE,), ["a", "b", "c"], 3),
    ("nodes, more executors than nodes", (FaultDomain.NODE,), ["a", "a", "b", "b", "c"], 5),
    ("zones first", (FaultDomain.ZONE, FaultDomain.NODE), ["a", "c"], 2),
    ("zones, balanced", (FaultDomain.ZONE, FaultDomain.NODE), ["a", "b", "c", "c"], 4),
    ("nothing", (), ["a", "a"], 2),
]


@pytest.mark.parametrize(
    ("spread", "where", "replicas"), [case[1:] for case in SPREADS], ids=[case[0] for case in SPREADS]
)
def test_replicas_are_spread(spread: tuple[FaultDomain, ...], where: list[str], replicas: int) -> None:
    nodes = (switched("a", zone="z1"), switched("b", zone="z1"), switched("c", zone="z2"))
    assert sorted(_nodes_of(nodes, pool("p", replicas, gpu(), spread=spread))) == where


def test_replicas_on_one_node_take_different_gpus() -> None:
    nodes = (cut("m", (ALL_3G_H100, ALL_3G_H100)),)
    made = plan(Snapshot(nodes, (pool("p", 2, mig("3g.40gb")),)), 0)
    assert len({a.chiplet.gpu for a in made.create}) == 2


def test_a_large_pool_may_share_nodes_up_to_the_tolerated_loss() -> None:
    nodes = tuple(switched(f"n{i:02}") for i in range(12))
    where = _nodes_of(nodes, pool("p", 40, gpu()))
    assert max(where.count(name) for name in set(where)) == 4


def test_checkpoint_peers_are_in_another_domain() -> None:
    nodes = (switched("a"), switched("b"))
    made = plan(Snapshot(nodes, (pool("p", 4, gpu()),)), 0)
    home = {a.slot: a.node for a in made.create}
    assert all(a.peer is not None and home[a.peer] != a.node for a in made.create)


def test_an_only_executor_has_no_peer() -> None:
    assert plan(Snapshot((switched("a"),), (pool("p", 1, gpu()),)), 0).create[0].peer is None


def test_fault_domains_are_told_from_the_outside_in() -> None:
    nodes = (cut("m", zone="z1"),)
    (made,) = plan(Snapshot(nodes, (pool("p", 1, mig("2g.20gb")),)), 0).create
    assert made.fault_domain == ("zone/z1", "node/m", "gpu/GPU-m-0", "instance/MIG-m-0-1")


def test_counts_and_labels_are_enough_for_a_node_without_topology() -> None:
    nodes = (counted("a", gpu=1, mig_3g__40gb=1),)
    made = plan(Snapshot(nodes, (pool("p", 1, gpu(product=H100)), pool("q", 1, mig("3g.40gb")))), 0)
    assert [(a.chiplet.resource, a.chiplet.devices) for a in made.create] == [
        ("nvidia.com/gpu", ()),
        ("nvidia.com/mig-3g.40gb", ()),
    ]


def test_under_strategy_single_instances_go_by_the_name_of_gpus() -> None:
    node = replace(
        counted("a", gpu=2),
        labels={
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
            "nvidia.com/mig.strategy": "single",
        },
    )
    made = plan(Snapshot((node,), (pool("p", 1, mig("3g.40gb")), pool("q", 1, gpu()))), 0)
    assert [a.chiplet.resource for a in made.create] == ["nvidia.com/gpu"]
    assert [u.pool for u in made.unplaced] == ["ns/q"]


def test_what_others_hold_is_left_to_them() -> None:
    nodes = (switched("a", gpus=2), counted("b", gpu=2))
    foreign = (
        ForeignUse("a", "nvidia.com/gpu", 1, ("GPU-a-0",)),
        ForeignUse("b", "nvidia.com/gpu", 1),
    )
    made = plan(Snapshot(nodes, (pool("p", 3, gpu()),), foreign=foreign), 0)
    assert sorted((a.node, a.chiplet.devices) for a in made.create) == [("a", ("GPU-a-1",)), ("b", ())]
    assert made.unplaced[0].count == 1


def test_what_is_known_by_number_takes_other_devices_than_what_is_known_by_name() -> None:
    world = World((switched("a", gpus=2),), (pool("p", 1, gpu()),))
    world.step()
    world.change("p-0-1", devices=("GPU-a-1",))
    world.foreign = (ForeignUse("a", "nvidia.com/gpu", 1),)
    world.pools += (pool("q", 1, gpu()),)
    assert [u.reason for u in world.step().unplaced] == [Constraint.DEVICES_IN_USE]


def test_a_tolerated_taint_is_no_obstacle() -> None:
    node = replace(switched("a"), taints=(Taint("gpu", TaintEffect.NO_SCHEDULE, "yes"),))
    asked = pool("p", 1, gpu(), tolerations=(Toleration("gpu", "Equal", "yes"),))
    assert _nodes_of((node,), asked) == ["a"]


def test_pools_of_higher_priority_are_placed_first() -> None:
    nodes = (switched("a", gpus=1),)
    low, high = pool("a-low", 1, gpu()), pool("z-high", 1, gpu(), priority=10)
    assert [a.pool for a in plan(Snapshot(nodes, (low, high)), 0).create] == ["ns/z-high"]


def test_groups_of_gpus_stay_on_one_numa_node_where_they_can() -> None:
    made = plan(Snapshot((switched("a"),), (pool("p", 2, gpu(4)),)), 0)
    assert sorted(a.chiplet.devices for a in made.create) == [
        tuple(f"GPU-a-{i}" for i in range(4)),
        tuple(f"GPU-a-{i}" for i in range(4, 8)),
    ]


def test_gpu_nodes_are_left_to_those_who_need_gpus() -> None:
    assert _nodes_of((switched("a"), bare("z")), pool("p", 1, CPU)) == ["z"]


def test_products_are_told_apart() -> None:
    nodes = (switched("a", product=H200), switched("b", product=A100), cut("c", (MIXED_H100,)))
    assert _nodes_of(nodes, pool("p", 1, gpu(product=A100))) == ["b"]
