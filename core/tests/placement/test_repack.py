"""Repacking: room by moving little, never worse than without, never more than is worth it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_cases import cut, dynamic, gpu, mig, pool, switched
from placement_world import World, check_valid

from superinfer_core.api.v1alpha1.chipletpool import Allocation
from superinfer_core.placement import plan
from superinfer_core.placement.geometry import PRODUCTS
from superinfer_core.placement.hardware import GpuKind, GpuMode
from superinfer_core.placement.outcome import EndReason
from superinfer_core.placement.packing import size_of
from superinfer_core.placement.repack import RepackLimits, repack
from superinfer_core.placement.snapshot import ExecutorPhase, RunningExecutor

DRA = Allocation.DRA
LIMITS = RepackLimits(work=2.0)


def _running(name: str, node: str, *devices: str, slot: int = 0) -> RunningExecutor:
    return RunningExecutor(
        f"{name}-{slot}-1",
        f"ns/{name}",
        slot,
        1,
        node,
        "r1",
        ExecutorPhase.READY,
        planned_devices=devices,
        devices=devices,
        resource="nvidia.com/gpu",
        count=len(devices),
    )


def _scattered() -> World:
    """One GPU of each of two nodes is used, so nobody finds two free GPUs on one."""
    world = World(
        (switched("a", gpus=2), switched("b", gpus=2)),
        (pool("p", 2, gpu(), spread=()), pool("big", 1, gpu(2))),
    )
    for slot, node in enumerate("ab"):
        one = _running("p", node, f"GPU-{node}-0", slot=slot)
        world.executors[one.name] = one
        world.incarnations["ns/p", slot] = 1
    return world


def test_one_small_executor_moves_to_make_room_for_a_large_one() -> None:
    world = _scattered()
    assert plan(world.snapshot(), 0).unplaced[0].pool == "ns/big"
    found = repack(world.snapshot(), 0, LIMITS)
    assert found is not None
    assert len(found.moves) == 1
    assert found.placed == {"ns/big": 1}
    assert (found.slices_gained, found.slices_moved) == (16, 8)


def test_moves_done_leave_the_old_executor_until_the_new_one_serves() -> None:
    world = _scattered()
    found = repack(world.snapshot(), 0, LIMITS)
    assert found is not None
    world.starts_ready = False
    world.do(replace(plan(world.snapshot(), 0), create=found.moves, unplaced=()))
    check_valid(world)
    assert len(world.executors) == 3
    assert not plan(world.snapshot(), 0).drain
    (new,) = (e for e in world.executors.values() if e.incarnation == 2)
    world.change(new.name, phase=ExecutorPhase.READY)
    world.starts_ready = True
    made = world.step()
    assert [(e.name, e.reason) for e in made.drain] == [(found.moves[0].replaces, EndReason.REPACKED)]
    made = world.step()
    assert [a.pool for a in made.create] == ["ns/big"]
    check_valid(world)


def test_nothing_moves_when_it_is_not_worth_it() -> None:
    world = _scattered()
    assert repack(world.snapshot(), 0, replace(LIMITS, worth=0.1)) is None
    assert repack(world.snapshot(), 0, replace(LIMITS, max_moves=0)) is None


def test_nothing_moves_while_everything_has_a_place() -> None:
    world = World((switched("a"),), (pool("p", 2, gpu()),))
    world.step()
    assert repack(world.snapshot(), 0, LIMITS) is None


def test_nothing_moves_where_no_move_would_help() -> None:
    world = World((switched("a", gpus=1),), (pool("p", 1, gpu()), pool("q", 1, gpu())))
    world.step()
    assert repack(world.snapshot(), 0, LIMITS) is None


def test_slices_of_a_gpu_are_repacked_too() -> None:
    # 1g instances at slices 0 and 4 leave no half of the GPU free.
    world = World(
        (dynamic("d", gpus=2),),
        (
            pool("p", 2, mig("1g.10gb"), allocation=DRA, spread=()),
            pool("q", 2, mig("7g.80gb"), allocation=DRA),
        ),
    )
    for slot, where in enumerate(("GPU-d-0:1g.10gb:0", "GPU-d-1:1g.10gb:4")):
        one = replace(_running("p", "d", where, slot=slot), resource=None, count=1)
        world.executors[one.name] = one
        world.incarnations["ns/p", slot] = 1
    found = repack(world.snapshot(), 0, LIMITS)
    assert found is not None
    assert found.placed == {"ns/q": 1}
    assert found.slices_moved == 1


@settings(max_examples=15)
@given(st.data())
def test_a_repacking_is_valid_bounded_and_places_more(data: st.DataObject) -> None:
    nodes = (switched("a", gpus=4), switched("b", gpus=4), dynamic("d", gpus=2), cut("m"))
    demands = (gpu(), gpu(2), mig("1g.10gb", named=True), mig("3g.40gb", named=True))
    pools = tuple(
        pool(f"p{n}", data.draw(st.integers(1, 4)), demand, spread=(),
             allocation=DRA if demand.named else Allocation.DEVICE_PLUGIN)
        for n, demand in enumerate(demands)
    )  # fmt: skip
    world = World(nodes, pools)
    world.step()
    for name in data.draw(st.sets(st.sampled_from(sorted(world.executors)), max_size=6)):
        pool_of = world.executors.pop(name).pool
        world.replace_pool(
            replace(next(p for p in world.pools if p.key == pool_of), replicas=sum(
                e.pool == pool_of for e in world.executors.values()))
        )  # fmt: skip
    world.pools += (pool("big", 3, gpu(data.draw(st.sampled_from((2, 4))))),)
    world.step()
    before = sum(one.count for one in plan(world.snapshot(), 0).unplaced)
    found = repack(world.snapshot(), 0, LIMITS)
    if found is None:
        return
    assert 0 < len(found.moves) <= LIMITS.max_moves
    assert found.slices_moved <= found.slices_gained * LIMITS.worth
    assert repack(world.snapshot(), 0, LIMITS) == found
    world.do(replace(plan(world.snapshot(), 0), create=found.moves))
    check_valid(world)
    for _ in range(3):
        world.step()
        check_valid(world)
    after = sum(one.count for one in plan(world.snapshot(), 0).unplaced)
    assert after == before - sum(found.placed.values())


@pytest.mark.parametrize(
    ("product", "profile", "slices"),
    [
        ("NVIDIA A100-SXM4-40GB", "1g.5gb", 1),
        ("NVIDIA A100-SXM4-40GB", "1g.10gb", 2),
        ("NVIDIA A100-SXM4-80GB", "1g.10gb", 1),
        ("NVIDIA A100-SXM4-80GB", "1g.20gb", 2),
        ("NVIDIA H100 NVL", "1g.24gb", 2),
        ("NVIDIA H100 NVL", "2g.24gb", 2),
        ("NVIDIA H200", "1g.35gb", 2),
        ("NVIDIA H200", "1g.18gb+me", 1),
        ("NVIDIA H200", "3g.71gb", 4),
        ("NVIDIA H200", "4g.71gb", 4),
        ("NVIDIA B200", "1g.45gb", 2),
        ("NVIDIA GH200 144G HBM3e", "1g.36gb", 2),
        ("NVIDIA H200", "7g.141gb", 8),
    ],
)
def test_an_executor_counts_the_slices_its_instance_has(product: str, profile: str, slices: int) -> None:
    known = PRODUCTS[product]
    kind = GpuKind(known.label, known.memory_mib, GpuMode.DYNAMIC, known.mig_profiles)
    wanted = pool("p", 1, mig(profile), allocation=DRA)
    assert size_of(wanted, [kind]) == slices


def test_moving_an_instance_of_double_memory_counts_two_slices() -> None:
    world = World(
        (dynamic("d", gpus=2),),
        (
            pool("p", 2, mig("1g.20gb"), allocation=DRA, spread=()),
            pool("q", 2, mig("7g.80gb"), allocation=DRA),
        ),
    )
    for slot, where in enumerate(("GPU-d-0:1g.20gb:0", "GPU-d-1:1g.20gb:4")):
        one = replace(_running("p", "d", where, slot=slot), resource=None, count=1)
        world.executors[one.name] = one
        world.incarnations["ns/p", slot] = 1
    found = repack(world.snapshot(), 0, LIMITS)
    assert found is not None
    assert (found.slices_gained, found.slices_moved) == (8, 2)
