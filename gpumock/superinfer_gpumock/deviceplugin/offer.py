"""Which resources a mock node offers, with which devices; and which of them are best taken together.

Promise: pure. Resource names and device ids are those of NVIDIA's device plugin.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from superinfer_core.api.v1alpha1.labels import GPU_RESOURCE, mig_resource
from superinfer_gpumock.description import DescriptionInvalid, MigStrategy, Offer
from superinfer_gpumock.node import MockGpu, MockNode


@dataclass(frozen=True, slots=True)
class Device:
    """One schedulable device."""

    id: str
    healthy: bool
    numa_node: int


def offered(node: MockNode) -> Mapping[str, tuple[Device, ...]]:
    """Devices by resource; raises DescriptionInvalid where the strategy does not fit the GPUs."""
    if node.offer is not Offer.DEVICE_PLUGIN:
        return {}
    if node.mig_strategy is MigStrategy.SINGLE:
        _check_single(node)
    resources: dict[str, list[Device]] = {}
    for gpu in node.gpus:
        if not gpu.mig_enabled or node.mig_strategy is MigStrategy.NONE:
            resources.setdefault(GPU_RESOURCE, []).append(Device(gpu.uuid, gpu.healthy, gpu.numa_node))
            continue
        for instance in gpu.instances:
            single = node.mig_strategy is MigStrategy.SINGLE
            name = GPU_RESOURCE if single else mig_resource(instance.profile.name)
            resources.setdefault(name, []).append(Device(instance.uuid, instance.healthy, gpu.numa_node))
    return {name: tuple(devices) for name, devices in sorted(resources.items())}


def _check_single(node: MockNode) -> None:
    if len({gpu.mig_enabled for gpu in node.gpus}) > 1:
        raise DescriptionInvalid("migStrategy: single needs MIG on all GPUs or on none; use mixed")
    if len({instance.profile.name for gpu in node.gpus for instance in gpu.instances}) > 1:
        raise DescriptionInvalid("migStrategy: single needs instances of one profile; use mixed")


def preferred(
    node: MockNode, *, available: Collection[str], must_include: Collection[str], size: int
) -> Sequence[str]:
    """The devices to give: linked GPUs without breaking other pairs, or instances of the fewest GPUs."""
    by_uuid = {gpu.uuid: gpu for gpu in node.gpus}
    if all(device in by_uuid for device in available):
        return _preferred_gpus(node, by_uuid, available, must_include, size)
    return _packed_instances(node, available, must_include, size)


def _preferred_gpus(
    node: MockNode,
    by_uuid: Mapping[str, MockGpu],
    available: Collection[str],
    must_include: Collection[str],
    size: int,
) -> Sequence[str]:
    free = sorted((by_uuid[device] for device in available), key=lambda gpu: gpu.index)
    required = {by_uuid[device].index for device in must_include if device in by_uuid}

    def score(chosen: tuple[MockGpu, ...]) -> tuple[int, int, int]:
        inside = {gpu.index for gpu in chosen}
        linked = sum(node.links[a][b] for a, b in combinations(sorted(inside), 2))
        broken = sum(
            node.links[gpu.index][other.index] for gpu in chosen for other in free if other not in chosen
        )
        return linked, -broken, -len({gpu.numa_node for gpu in chosen})

    fitting = [
        chosen for chosen in combinations(free, size) if required <= {gpu.index for gpu in chosen}
    ]  # at most 16 GPUs: 12870 sets
    return [gpu.uuid for gpu in max(fitting, key=score)] if fitting else []


def _packed_instances(
    node: MockNode, available: Collection[str], must_include: Collection[str], size: int
) -> Sequence[str]:
    parent = {instance.uuid: gpu.index for gpu in node.gpus for instance in gpu.instances}
    free_on: dict[int, int] = {}
    for device in available:
        free_on[parent.get(device, -1)] = free_on.get(parent.get(device, -1), 0) + 1
    rest = sorted(
        (device for device in available if device not in must_include),
        key=lambda device: (free_on[parent.get(device, -1)], parent.get(device, -1), device),
    )
    return [*must_include, *rest][:size]
