"""MIG layout advice: followed, it makes the room it promises."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_cases import ALL_3G_H100, H100, MIXED_H100, cut, gpu, mig, pool, switched
from placement_world import World, check_valid

from superinfer_core.placement.advice import named_layouts
from superinfer_core.placement.geometry import PRODUCTS, GpuProduct, can_lie_together
from superinfer_core.placement.node import MigInstance, Node
from superinfer_core.placement.outcome import LayoutAdvice

PRODUCT = PRODUCTS["NVIDIA H100 80GB HBM3"]


def _followed(node: Node, advice: LayoutAdvice) -> Node:
    """The node as mig-parted would leave it."""
    assert node.topology is not None
    gpus = []
    allocatable = {key: n for key, n in node.allocatable.items() if not key.startswith("nvidia.com/")}
    for one in node.topology.gpus:
        if advice.device not in ("all", one.uuid):
            made = one
        else:
            made = replace(
                one, mig_enabled=bool(advice.profiles), instances=_laid(PRODUCT, one.uuid, advice.profiles)
            )
        gpus.append(made)
        names = [i.profile for i in made.instances] if made.mig_enabled else []
        for key in [f"nvidia.com/mig-{name}" for name in names] or ["nvidia.com/gpu"] * (
            not made.mig_enabled
        ):
            allocatable[key] = allocatable.get(key, 0) + 1
    return replace(node, allocatable=allocatable, topology=replace(node.topology, gpus=tuple(gpus)))


def _laid(product: GpuProduct, uuid: str, names: tuple[str, ...]) -> tuple[MigInstance, ...]:
    laid: list[tuple[object, int]] = []

    def lay(left: list[str]) -> bool:
        if not left:
            return True
        profile = product.profile(left[0])
        assert profile is not None
        for start in profile.starts:
            if can_lie_together([*laid, (profile, start)]):  # type: ignore[list-item]
                laid.append((profile, start))
                if lay(left[1:]):
                    return True
                laid.pop()
        return False

    order = sorted(names, key=lambda name: -product.profile(name).memory_slices)  # type: ignore[union-attr]
    assert lay(order), names
    return tuple(
        MigInstance(f"MIG-new-{uuid}-{n}", profile.name, start, profile.memory_slices)  # type: ignore[attr-defined]
        for n, (profile, start) in enumerate(laid)
    )


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=lambda product: product.label)
def test_every_named_configuration_can_exist(product: GpuProduct) -> None:
    for _, layout in named_layouts(product):
        names = tuple(name for name, count in layout for _ in range(count))
        assert len(_laid(product, "GPU-0", names)) == len(names)


def test_an_idle_node_is_given_the_configuration_that_places_most() -> None:
    world = World((cut("m", (MIXED_H100, MIXED_H100)),), (pool("p", 4, mig("3g.40gb")),))
    made = world.step()
    # Two of four find a place; the node is then in use, so nothing is advised for it.
    assert made.unplaced[0].count == 2
    assert made.advice == ()
    world = World((cut("m", (MIXED_H100, MIXED_H100)),), (pool("p", 4, mig("1g.20gb")),))
    (advice,) = world.step().advice
    assert (advice.node, advice.device, advice.config) == ("m", "all", "all-1g.20gb")
    assert world.step().unplaced[0].layouts == {"m": "all-1g.20gb"}


def test_an_idle_gpu_of_a_node_in_use_is_named_by_itself() -> None:
    nodes = (cut("m", (MIXED_H100, ALL_3G_H100)),)
    world = World(nodes, (pool("p", 1, mig("2g.20gb")), pool("q", 2, mig("1g.20gb"))))
    (advice,) = world.step().advice
    assert (advice.device, advice.config) == ("GPU-m-1", None)
    assert advice.profiles == ("1g.20gb",) * 4


def test_whole_gpus_are_had_by_turning_mig_off() -> None:
    world = World((cut("m", (MIXED_H100, MIXED_H100)),), (pool("p", 2, gpu()),))
    assert [advice.config for advice in world.step().advice] == ["all-disabled"]


def test_mig_is_turned_on_where_whole_gpus_are_idle() -> None:
    world = World((switched("a", gpus=2, product=H100),), (pool("p", 3, mig("3g.40gb")),))
    assert [advice.config for advice in world.step().advice] == ["all-3g.40gb"]


def test_nodes_that_pools_may_not_use_are_not_advised() -> None:
    world = World(
        (replace(cut("m"), schedulable=False), cut("n")),
        (pool("p", 1, mig("7g.80gb"), node_selector={"team": "x"}),),
    )
    assert world.step().advice == ()


_layouts = st.sampled_from((MIXED_H100, ALL_3G_H100, (("7g.80gb", 0),), ()))
_demands = st.sampled_from(
    tuple(mig(name) for name in ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"))
)


@settings(max_examples=60)
@given(
    st.lists(st.lists(_layouts, min_size=1, max_size=2), min_size=1, max_size=3),
    st.lists(st.tuples(_demands, st.integers(1, 4)), min_size=1, max_size=3),
)
def test_followed_advice_places_what_it_says(
    layouts: list[list[object]], demands: list[tuple[object, int]]
) -> None:
    nodes = tuple(cut(f"n{i}", tuple(gpus)) for i, gpus in enumerate(layouts))  # type: ignore[arg-type]
    pools = tuple(pool(f"p{i}", count, demand) for i, (demand, count) in enumerate(demands))  # type: ignore[arg-type]
    world = World(nodes, pools)
    made = world.step()
    before = sum(one.count for one in made.unplaced)
    for advice in made.advice:
        node = next(node for node in world.nodes if node.name == advice.node)
        world.replace_node(_followed(node, advice))
    again = world.step()
    check_valid(world)
    after = sum(one.count for one in again.unplaced)
    promised = sum(
        int(part.split(" of ")[0])
        for advice in made.advice
        for part in advice.message.removeprefix("would make room for ").split(", ")
    )
    assert after <= before - promised
