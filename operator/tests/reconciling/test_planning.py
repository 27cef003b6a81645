"""Planning goes on from round to round: nothing is made twice, and a round that fails costs only itself."""

import pytest

from reconciling.world import World
from superinfer_core.placement.index import PlacementIndex


@pytest.fixture
def world():
    made = World()
    for name in ("n1", "n2", "n3"):
        made.node(name)
    return made


async def running(world, **spec):
    world.pool(**spec)
    await world.settle()
    world.run_pods()
    await world.settle()


async def test_a_round_whose_planning_fails_costs_nothing_but_itself(world, monkeypatch):
    await running(world)
    world.pool(replicas=3)
    with monkeypatch.context() as broken:
        broken.setattr(PlacementIndex, "plan", lambda index, now: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await world.round()
    assert world.names() == ["p-0-1", "p-1-1"]
    await world.settle()
    assert world.names() == ["p-0-1", "p-1-1", "p-2-1"]


async def test_pools_nothing_happened_to_are_told_the_same(world):
    await running(world)
    before = world.objects["chipletpools", "shop", "p"]["status"]
    world.pool(name="other", replicas=1)
    await world.settle()
    assert world.objects["chipletpools", "shop", "p"]["status"] == before
    assert len(before["chiplets"]) == 2


async def test_pods_the_server_would_not_take_are_planned_until_it_does(world):
    world.pool()
    world.away = True
    for _ in range(3):
        with pytest.raises(Exception, match="writes failed"):
            await world.round()
    world.away = False
    await world.settle()
    assert world.names() == ["p-0-1", "p-1-1"]
