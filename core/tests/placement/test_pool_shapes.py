"""Shapes for a pool: what keeps all of its contracts, on hardware there is, whatever is taken of it now."""

from dataclasses import replace

import pytest
from placement_cases import ALL_3G_H100, CPU, H100, bare, cut, gpu, mig, pool, switched

from superinfer_core.contract.pool_promises import PoolPromises
from superinfer_core.placement import Node
from superinfer_core.placement.idle_hardware import HardwareView
from superinfer_core.placement.node import Taint, TaintEffect
from superinfer_core.placement.pool_shapes import PoolShapes, pool_shapes
from superinfer_core.prediction.profile import Profile, ResidualQuantile, StepCoefficients
from superinfer_core.slo import Metric, Objective

PROFILE = Profile(
    model="m",
    engine="vllm",
    machine="x",
    dtype="bfloat16",
    step_model=StepCoefficients(base_ms=8, per_decode_seq_ms=0.05, per_prefill_token_ms=0.1),
    residuals=(ResidualQuantile(quantile=0.99, factor=1.2),),
    max_num_seqs=32,
    max_step_tokens=2048,
)
PROMISES = PoolPromises(2, (Objective(Metric.TTFT, 99, 600), Objective(Metric.ITL, 99, 40)))
MEASURED = {("3g.40gb", 1): PROFILE}
NODES = (cut("a"), cut("b"), cut("c", (ALL_3G_H100,)))
POOL = pool("p", 2, mig("3g.40gb"))


def found(
    nodes: tuple[Node, ...] = NODES,
    a_pool=POOL,
    promises=PROMISES,
    profiles=MEASURED,
    need: int | None = None,
) -> PoolShapes:
    topologies = {node.name: node.topology for node in nodes if node.topology is not None}
    hardware = HardwareView().of(nodes, topologies, [a_pool])
    return pool_shapes(a_pool, promises, profiles, hardware, lambda gpus: need)


def names(shapes: PoolShapes) -> list[str]:
    return [one.option.name.removeprefix(f"{H100} ") for one in shapes.offers]


def test_only_shapes_that_nodes_have_are_offered_cheapest_first() -> None:
    shapes = found()
    assert names(shapes) == ["1g.10gb", "2g.20gb", "3g.40gb"]
    assert [one.option.measured for one in shapes.offers] == [False, False, True]
    assert "for 2 contracts" in shapes.message
    assert shapes.message.endswith("the pool's own 3g.40gb is among them")


def test_a_shape_that_misses_a_target_is_left_out() -> None:
    tight = replace(PROMISES, objectives=(Objective(Metric.ITL, 99, 11),))
    shapes = found(promises=tight)
    assert names(shapes) == ["3g.40gb"]
    none = found(promises=replace(PROMISES, objectives=(Objective(Metric.ITL, 99, 5),)))
    assert names(none) == []
    assert none.message.endswith("the pool's own 3g.40gb would not do: ITL takes 10 ms")


def test_a_shape_with_too_little_memory_is_left_out() -> None:
    assert names(found(need=20_000)) == ["2g.20gb", "3g.40gb"]
    assert "too small" in found(need=60_000).message


def test_what_is_away_cordoned_or_taken_changes_nothing() -> None:
    away = tuple(replace(node, ready=False, schedulable=False) for node in NODES)
    assert found(away) == found()


@pytest.mark.parametrize(
    "elsewhere",
    [
        replace(NODES[2], labels={"team": "other"}),
        replace(NODES[2], taints=(Taint("reserved", TaintEffect.NO_SCHEDULE),)),
    ],
    ids=["selector", "taint"],
)
def test_nodes_the_pool_may_not_use_do_not_count(elsewhere: Node) -> None:
    mine = tuple(replace(node, labels={"team": "mine"}) for node in NODES[:2])
    a_pool = replace(POOL, replicas=3, node_selector={"team": "mine"})
    assert {one.option.domains for one in found((*mine, elsewhere), a_pool).offers} == {2}


def test_a_node_more_than_executors_can_be_spread_over_changes_nothing() -> None:
    assert found((*NODES, cut("d"))) == found()


def test_several_products_that_could_be_the_measured_one_are_all_estimates() -> None:
    nodes = (switched("a"), switched("b", product=H100))
    whole = pool("p", 1, gpu())
    assert {one.option.measured for one in found(nodes, whole, profiles={("GPU", 1): PROFILE}).offers} == {
        False
    }
    alone = found(nodes[1:], whole, profiles={("GPU", 1): PROFILE})
    assert (alone.offers[0].option.name, alone.offers[0].option.measured) == (f"{H100} GPU", True)


def test_a_profile_of_a_group_is_measured_for_the_group() -> None:
    shapes = found((switched("a", product=H100),), pool("p", 1, gpu(2)), profiles={("GPU", 2): PROFILE})
    speeds = {one.option.name.removeprefix(f"{H100} "): one.option for one in shapes.offers}
    assert speeds["2xGPU"].measured
    assert not speeds["GPU"].measured
    assert speeds["GPU"].steps.base_ms > speeds["2xGPU"].steps.base_ms


def test_the_load_is_what_the_quotas_say() -> None:
    assert "one request at a time" in found().message
    assert "6 requests at once on each executor" in found(promises=replace(PROMISES, at_once=12)).message
    by_rate = found(promises=replace(PROMISES, requests_per_second=30.0))
    assert "30 requests a second" in by_rate.message
    assert max(one.executors for one in by_rate.offers) > 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"a_pool": pool("p", 1, CPU)}, "shape CPU"),
        ({"promises": PoolPromises()}, "no contract is in effect"),
        ({"profiles": {}}, "without spec.profileRef"),
        ({"nodes": (bare("a"),)}, "no node has a GPU with shape 3g.40gb"),
    ],
    ids=["no devices", "no contracts", "no profile", "no such GPU"],
)
def test_no_shapes_without_saying_why(more, told) -> None:
    shapes = found(**more)
    assert shapes.offers == ()
    assert told in shapes.message


def test_a_view_gives_the_same_object_until_hardware_changes() -> None:
    view, topologies = (
        HardwareView(),
        {node.name: node.topology for node in NODES if node.topology is not None},
    )
    first = view.of(NODES, topologies, [POOL])
    heartbeat = (replace(NODES[0], ready=False), *NODES[1:])
    assert view.of(heartbeat, topologies, [POOL]) is first
    assert view.of(NODES[1:], topologies, [POOL]) is not first
