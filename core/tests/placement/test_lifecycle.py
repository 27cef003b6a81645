"""Executors over time: new revisions, scaling, failures, recovery."""

from dataclasses import replace

import pytest
from placement_cases import CPU, UNHEALTHY, bridged, counted, cut, gpu, mig, pair, pool, switched
from placement_world import World, check_valid

from superinfer_core.placement import plan
from superinfer_core.placement.node import (
    Health,
    HealthState,
    Node,
    RecoveryAction,
    Taint,
    TaintEffect,
    Toleration,
)
from superinfer_core.placement.outcome import Constraint, EndReason
from superinfer_core.placement.snapshot import ExecutorPhase, PlannerMemory


def _sick(node: Node, at: int = 0, health: Health = UNHEALTHY) -> Node:
    assert node.topology is not None
    gpus = list(node.topology.gpus)
    gpus[at] = replace(gpus[at], health=health)
    return replace(node, topology=replace(node.topology, gpus=tuple(gpus)))


def _revised(world: World, revision: str = "r2") -> None:
    world.pools = tuple(replace(one, revision=revision) for one in world.pools)


def test_a_new_revision_replaces_one_executor_at_a_time_with_another_beside_it() -> None:
    world = World((switched("a"), switched("b")), (pool("p", 3, gpu()),))
    world.step()
    _revised(world)
    for slot in range(3):
        made = world.step()
        assert [(a.slot, bool(a.replaces)) for a in made.create] == [(slot, True)]
        assert not made.drain
        made = world.step()
        assert [ended.reason for ended in made.drain] == [EndReason.REVISION_REPLACED]
        # The next one starts in the plan after that.
        assert not made.create
    assert not world.step().changes
    assert {e.revision for e in world.executors.values()} == {"r2"}
    assert len(world.executors) == 3


def test_without_room_for_two_the_old_executor_goes_first() -> None:
    world = World((switched("a", gpus=2),), (pool("p", 2, gpu()),))
    world.step()
    _revised(world)
    made = world.step()
    assert len(made.drain) == 1
    assert not made.create
    made = world.step()
    assert len(made.create) == 1
    assert not made.drain


def test_a_pool_that_has_no_room_for_all_replicas_is_rolled_all_the_same() -> None:
    world = World((switched("a", gpus=2),), (pool("p", 3, gpu()),))
    world.step()
    _revised(world)
    for _ in range(6):
        world.step()
    assert {e.revision for e in world.executors.values()} == {"r2"}
    assert len(world.executors) == 2
    assert not world.step().changes


def test_a_rollout_waits_until_the_new_executor_serves() -> None:
    world = World((switched("a"),), (pool("p", 2, gpu()),))
    world.step()
    _revised(world)
    world.starts_ready = False
    assert len(world.step().create) == 1
    assert not world.step().changes


def test_executors_of_a_bad_revision_that_never_served_are_replaced_at_once() -> None:
    world = World((switched("a"),), (pool("p", 3, gpu()),), starts_ready=False)
    world.step()
    _revised(world)
    made = world.step()
    assert len(made.delete) == 3
    assert len(made.create) == 3


def test_scaling_down_gives_up_executors_that_do_not_serve_first() -> None:
    world = World((switched("a"), switched("b")), (pool("p", 3, gpu()),))
    world.step()
    world.change("p-1-1", phase=ExecutorPhase.NOT_READY)
    world.pools = (pool("p", 2, gpu()),)
    assert [ended.name for ended in world.step().drain] == ["p-1-1"]


def test_scaling_down_prefers_cordoned_nodes() -> None:
    world = World((switched("a"), switched("b")), (pool("p", 2, gpu()),))
    world.step()
    world.replace_node(replace(switched("a"), schedulable=False))
    world.pools = (pool("p", 1, gpu()),)
    made = world.step()
    assert [world_name.name for world_name in made.drain] == ["p-0-1"]
    assert world.on("p") == ["b"]


def test_a_cordoned_node_keeps_what_runs_and_gets_nothing_new() -> None:
    world = World((switched("a"), switched("b")), (pool("p", 2, gpu()),))
    world.step()
    world.replace_node(replace(switched("a"), schedulable=False))
    world.pools = (pool("p", 4, gpu()),)
    made = world.step()
    assert not made.drain
    assert {a.node for a in made.create} == {"b"}


def test_an_error_of_one_instance_moves_only_its_executor() -> None:
    world = World((cut("m"), cut("n")), (pool("p", 1, mig("3g.40gb")), pool("q", 1, mig("2g.20gb"))))
    world.step()
    (first,) = (e for e in world.executors.values() if e.pool == "ns/p")
    home = next(node for node in world.nodes if node.name == first.node)
    assert home.topology is not None
    sick = home.topology.gpus[0]
    instances = tuple(
        replace(one, health=UNHEALTHY) if one.uuid in first.held_devices else one for one in sick.instances
    )
    topology = replace(home.topology, gpus=(replace(sick, instances=instances),))
    world.replace_node(replace(home, topology=topology))
    made = world.step()
    assert [(ended.name, ended.reason) for ended in made.drain] == [(first.name, EndReason.DEVICE_UNHEALTHY)]
    assert [a.node for a in made.create] == [("n" if first.node == "m" else "m")]


def test_an_error_of_a_gpu_moves_everything_on_it() -> None:
    world = World((cut("m"), cut("n")), (pool("p", 2, mig("3g.40gb")), pool("q", 2, mig("1g.10gb"))))
    world.step()
    on_m = sorted(e.name for e in world.executors.values() if e.node == "m")
    assert len(on_m) == 2
    world.replace_node(_sick(cut("m")))
    made = world.step()
    assert sorted(ended.name for ended in made.drain) == on_m
    assert {u.pool for u in made.unplaced} == {"ns/p", "ns/q"}
    assert {u.reason for u in made.unplaced} <= {Constraint.DEVICE_UNHEALTHY, Constraint.DEVICES_IN_USE}


@pytest.mark.parametrize(
    ("action", "ended"), [(RecoveryAction.GPU_RESET, 1), (RecoveryAction.NODE_REBOOT, 4)]
)
def test_a_fault_reaches_as_far_as_its_recovery(action: RecoveryAction, ended: int) -> None:
    world = World((switched("a", gpus=4),), (pool("p", 4, gpu()),))
    world.step()
    world.replace_node(_sick(switched("a", gpus=4), 0, Health(HealthState.UNHEALTHY, "Xid95", action)))
    assert len(world.step().drain) == ended


def test_a_degraded_gpu_keeps_what_runs_and_gets_nothing_new() -> None:
    world = World((switched("a", gpus=2),), (pool("p", 1, gpu()),))
    world.step()
    world.replace_node(_sick(switched("a", gpus=2), 0, Health(HealthState.DEGRADED, "Xid63")))
    world.pools = (pool("p", 3, gpu()),)
    made = world.step()
    assert not made.drain
    assert [a.chiplet.devices for a in made.create] == [("GPU-a-1",)]
    assert [u.reason for u in made.unplaced] == [Constraint.DEVICE_UNHEALTHY]


def test_a_recovered_device_is_used_again_after_the_hold_down_which_doubles() -> None:
    well, sick = switched("a", gpus=1), _sick(switched("a", gpus=1))
    world = World((well,), (pool("p", 1, gpu()),))
    world.step(0)
    now = 0.0
    for hold_s in (60, 120, 240):
        now += 10
        world.replace_node(sick)
        assert len(world.step(now).drain) == 1
        now += 10
        world.replace_node(well)
        made = world.step(now)
        assert not made.create
        assert made.wake_at == now + hold_s
        assert not world.step(now + hold_s - 1).create
        now += hold_s
        assert len(world.step(now).create) == 1


def test_strikes_are_forgiven_after_a_quiet_while() -> None:
    well, sick = switched("a", gpus=1), _sick(switched("a", gpus=1))
    world = World((well,), (pool("p", 1, gpu()),))
    world.step(0)
    for now in (100.0, 5000.0):
        world.replace_node(sick)
        world.step(now)
        world.replace_node(well)
        assert world.step(now + 10).wake_at == now + 70
        world.step(now + 70)
    assert world.step(9000).memory == PlannerMemory({})


def test_a_node_that_is_away_for_a_moment_keeps_its_executors() -> None:
    world = World((switched("a"), switched("b")), (pool("p", 2, gpu()),))
    world.step(0)
    world.replace_node(replace(switched("a"), ready=False, not_ready_since=100.0))
    made = world.step(110)
    assert not made.changes
    assert made.wake_at == 130
    made = world.step(130)
    assert [ended.reason for ended in made.delete] == [EndReason.NODE_LOST]
    assert [a.node for a in made.create] == ["b"]


def test_what_is_being_deleted_holds_its_device_and_is_replaced_elsewhere() -> None:
    world = World((switched("a", gpus=1), switched("b", gpus=1)), (pool("p", 1, gpu()),))
    world.step()
    world.change("p-0-1", terminating=True)
    made = world.step()
    assert [(a.slot, a.node) for a in made.create] == [(0, "b")]


def test_a_gone_node_is_not_waited_for() -> None:
    world = World((switched("a"), switched("b")), (pool("p", 2, gpu()),))
    world.step()
    world.nodes = (switched("b"),)
    made = world.step()
    assert [(ended.reason, ended.force) for ended in made.delete] == [(EndReason.NODE_GONE, True)]


def test_a_gone_pool_is_drained() -> None:
    world = World((switched("a"),), (pool("p", 2, gpu()),))
    world.step()
    world.pools = ()
    assert [ended.reason for ended in plan(world.snapshot(), 0).drain] == [EndReason.POOL_GONE] * 2


def test_a_no_execute_taint_ends_executors_unless_tolerated() -> None:
    tolerant = pool("q", 1, gpu(), tolerations=(Toleration("maintenance", "Exists"),))
    world = World((switched("a", gpus=2), switched("b", gpus=1)), (pool("p", 1, gpu()), tolerant))
    world.step()
    assert world.on("p") != world.on("q")
    tainted = tuple(
        replace(node, taints=(Taint("maintenance", TaintEffect.NO_EXECUTE),)) for node in world.nodes
    )
    world.nodes = tainted
    made = world.step()
    assert [(ended.pool, ended.reason) for ended in made.drain] == [("ns/p", EndReason.NODE_TAINTED)]
    assert [u.reason for u in made.unplaced] == [Constraint.TAINT_NOT_TOLERATED]


def test_a_failed_executor_is_made_anew() -> None:
    world = World((switched("a"),), (pool("p", 1, gpu()),))
    world.step()
    world.change("p-0-1", phase=ExecutorPhase.FAILED)
    made = world.step()
    assert [ended.reason for ended in made.delete] == [EndReason.FAILED]
    assert "p-0-2" in world.executors


def test_a_device_the_pod_status_calls_unhealthy_is_left() -> None:
    world = World((counted("a", gpu=1), counted("b", gpu=1)), (pool("p", 1, gpu()),))
    world.step()
    world.change("p-0-1", device_unhealthy=True)
    made = world.step()
    assert [ended.reason for ended in made.drain] == [EndReason.DEVICE_UNHEALTHY]


class TestDeviceMismatch:
    """The kubelet gave other devices than planned."""

    def test_a_choice_that_breaks_nothing_is_accepted_and_planned_around(self) -> None:
        world = World((switched("a", gpus=2),), (pool("p", 1, gpu()),))
        world.step()
        world.change("p-0-1", devices=("GPU-a-1",))
        world.pools += (pool("q", 1, gpu()),)
        made = world.step()
        assert not made.drain
        assert [a.chiplet.devices for a in made.create] == [("GPU-a-0",)]
        check_valid(world)

    def test_a_torn_pair_is_recreated_twice_on_another_node_then_kept_and_flagged(self) -> None:
        world = World((bridged("a"), bridged("b")), (pool("p", 1, pair()),))
        (first,) = world.step().create
        assert first.chiplet.exact
        nodes = []
        for number in range(1, 3):
            name = f"p-0-{number}"
            node = world.executors[name].node
            nodes.append(node)
            world.change(name, devices=(f"GPU-{node}-0", f"GPU-{node}-1"))
            made = world.step()
            assert [ended.reason for ended in made.drain] == [EndReason.DEVICE_MISMATCH]
            assert made.create[0].recreations == number
            assert made.create[0].node != node
        node = world.executors["p-0-3"].node
        world.change("p-0-3", devices=(f"GPU-{node}-0", f"GPU-{node}-1"))
        made = world.step()
        assert not made.changes
        assert [(one.name, one.constraint) for one in made.flagged] == [("p-0-3", Constraint.DEVICE_MISMATCH)]


def test_cpu_executors_are_balanced_over_nodes() -> None:
    nodes = tuple(replace(counted(name), allocatable={"cpu": 64_000}) for name in "abc")
    world = World(nodes, (pool("p", 4, CPU), pool("q", 2, CPU)))
    world.step()
    load = sorted(sum(e.node == name for e in world.executors.values()) for name in "abc")
    assert load == [2, 2, 2]
