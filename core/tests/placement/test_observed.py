"""A NodeTopology as placement takes it: as the driver reported it, with gaps filled from known products."""

import pytest

from superinfer_core.api.v1alpha1.nodetopology import NodeTopologyStatus
from superinfer_core.placement.node import HEALTHY, HealthState, Link, LinkType, RecoveryAction
from superinfer_core.placement.observed import HardwareFacts


def _gpu(index: int, **more: object) -> dict[str, object]:
    return {
        "uuid": f"GPU-{index}",
        "index": index,
        "product": "NVIDIA H100 80GB HBM3",
        "memoryMiB": 81559,
        "health": {"state": "Healthy"},
        **more,
    }


def _status(*gpus: dict[str, object], **more: object) -> NodeTopologyStatus:
    return NodeTopologyStatus.model_validate({"gpus": list(gpus), **more})


def test_links_name_gpus_by_index_whatever_order_they_are_listed_in() -> None:
    status = _status(_gpu(1), _gpu(0), links=[{"a": "GPU-0", "b": "GPU-1", "type": "NVLink", "count": 12}])
    topology = HardwareFacts().topology(status)
    assert [gpu.index for gpu in topology.gpus] == [0, 1]
    assert topology.links == (Link(0, 1, LinkType.NVLINK, 12),)
    assert topology.gpus[0].product == "NVIDIA-H100-80GB-HBM3"


@pytest.mark.parametrize(
    ("said", "action"),
    [*((action.value, action) for action in RecoveryAction), (None, RecoveryAction.NONE)],
)
def test_what_brings_a_gpu_back_is_understood(said: str | None, action: RecoveryAction) -> None:
    health = {"state": "Unhealthy", "xid": 95} | ({"recoveryAction": said} if said else {})
    (gpu,) = HardwareFacts().topology(_status(_gpu(0, health=health))).gpus
    assert (gpu.health.state, gpu.health.recovery_action) == (HealthState.UNHEALTHY, action)
    assert gpu.health.reason == "Xid95"


def test_instances_come_by_their_place_and_are_healthy_unless_told_otherwise() -> None:
    instances = [
        {"uuid": "MIG-b", "profile": "2g.20gb", "giID": 2, "start": 4, "size": 2,
         "health": {"state": "Unhealthy", "reason": "ContainedECC"}},
        {"uuid": "MIG-a", "profile": "3g.40gb", "giID": 1, "start": 0, "size": 4},
    ]  # fmt: skip
    (gpu,) = HardwareFacts().topology(_status(_gpu(0, migEnabled=True, instances=instances))).gpus
    assert [one.uuid for one in gpu.instances] == ["MIG-a", "MIG-b"]
    assert gpu.instances[0].health is HEALTHY
    assert gpu.instances[1].health.reason == "ContainedECC"


def test_the_driver_is_believed_and_what_it_leaves_out_is_looked_up() -> None:
    reported = [
        {"name": "3g.40gb", "profileID": 9, "memorySlices": 4, "computeSlices": 3, "starts": [4, 0]},
        {"name": "1g.10gb", "profileID": 19, "memorySlices": 1, "computeSlices": 1, "memoryMiB": 9999},
    ]
    (gpu,) = HardwareFacts().topology(_status(_gpu(0, profiles=reported))).gpus
    three, one = gpu.profiles
    assert (three.starts, three.memory_mib) == ((0, 4), 40448)
    assert (one.starts, one.memory_mib) == (tuple(range(7)), 9999)


def test_equal_profiles_of_different_nodes_are_one_object() -> None:
    facts = HardwareFacts()
    reported = [{"name": "7g.80gb", "profileID": 0, "memorySlices": 8, "computeSlices": 7, "starts": [0]}]
    first, second = (facts.topology(_status(_gpu(0, profiles=reported))).gpus[0] for _ in range(2))
    assert first.profiles is second.profiles
