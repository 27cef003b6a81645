"""From a described node through driver and agent to a plan: what is published is what placement can use."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from superinfer_core.api.v1alpha1.chipletpool import Allocation, ChipletShape, Interconnect
from superinfer_core.api.v1alpha1.nodetopology import NodeTopologyStatus
from superinfer_core.placement import Snapshot, plan
from superinfer_core.placement.demand import ChipletDemand, PoolDemand
from superinfer_core.placement.node import Node
from superinfer_core.placement.observed import HardwareFacts
from superinfer_core.placement.outcome import Constraint, Plan
from superinfer_gpumock.deviceplugin.offer import offered
from superinfer_gpumock.examples import example
from superinfer_gpumock.faults import Failure, fail
from superinfer_gpumock.live import LiveNode

Look = Callable[..., Awaitable[NodeTopologyStatus]]


@pytest.fixture
def live(tmp_path: Path) -> Callable[[str], LiveNode]:
    def install(name: str) -> LiveNode:
        made = LiveNode(tmp_path / name)
        made.install(example(name), name)
        return made

    return install


def pool(
    chiplet: ChipletDemand, replicas: int, allocation: Allocation = Allocation.DEVICE_PLUGIN
) -> PoolDemand:
    return PoolDemand("shop/p", "uid", replicas, chiplet, allocation=allocation)


async def planned(look: Look, live: LiveNode, wanted: PoolDemand) -> Plan:
    described = live.read()[1]
    allocatable = {
        resource: sum(device.healthy for device in devices)
        for resource, devices in offered(described).items()
    }
    topology = HardwareFacts().topology(await look(live))
    node = Node(described.name, allocatable=allocatable | {"cpu": 64000, "memory": 2**40}, topology=topology)
    return plan(Snapshot((node,), (wanted,)), 0.0)


@pytest.mark.parametrize("allocation", list(Allocation))
async def test_two_linked_gpus_are_a_bridged_pair(
    look: Look, live: Callable[[str], LiveNode], allocation: Allocation
) -> None:
    bridged = live("a100-pcie-bridged")
    index = {gpu.uuid: gpu.index for gpu in bridged.read()[1].gpus}
    two = ChipletDemand(ChipletShape.GPU, count=2, interconnect=Interconnect.NVLINK_REQUIRED)
    made = await planned(look, bridged, pool(two, 5, allocation))
    pairs = [tuple(sorted(index[uuid] for uuid in item.chiplet.devices)) for item in made.create]
    assert sorted(pairs) == [(0, 2), (1, 3), (4, 5), (6, 7)]
    assert [item.count for item in made.unplaced] == [1], "there is no fifth pair"


async def test_behind_a_switch_any_four_gpus_are_linked(look: Look, live: Callable[[str], LiveNode]) -> None:
    four = ChipletDemand(ChipletShape.GPU, count=4, interconnect=Interconnect.NVLINK_REQUIRED)
    made = await planned(look, live("h200-nvswitch"), pool(four, 2))
    assert [len(item.chiplet.devices) for item in made.create] == [4, 4]


async def test_instances_are_planned_one_by_one_and_a_sick_one_is_not(
    look: Look, live: Callable[[str], LiveNode]
) -> None:
    mixed = live("h100-mixed-mig")
    sick = mixed.read()[1].gpus[2]
    mixed.edit(lambda described: fail(described, Failure(gpu=2, xid=48)))
    ones = pool(ChipletDemand(ChipletShape.MIG, profile="1g.10gb"), 9)
    made = await planned(look, mixed, ones)
    used = {uuid for item in made.create for uuid in item.chiplet.devices}
    assert len(made.create) == 2
    assert used.isdisjoint({instance.uuid for instance in sick.instances})
    assert [(item.count, item.reason) for item in made.unplaced] == [(7, Constraint.DEVICE_UNHEALTHY)]
