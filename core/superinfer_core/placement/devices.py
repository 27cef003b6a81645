"""Which devices of one node are taken, and by whom that is known.

Promise: what a container was really given counts; where only a number is known, that many of the last free
devices are taken to be used, so that never more is promised than there is. Mutable; one owner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from superinfer_core.api.v1alpha1.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX, mig_resource
from superinfer_core.placement.hardware import (
    COMPUTE_SHIFT,
    COMPUTE_UNIT,
    FREE,
    FULL,
    MASK,
    MEDIA,
    GpuMode,
    NodeKind,
)
from superinfer_core.placement.node import Gpu, HealthState, Node
from superinfer_core.placement.snapshot import HoldDown
from superinfer_core.placement.standing import gpu_domain, held, instance_domain


def made_instance(gpu_uuid: str, profile: str, start: int) -> str:
    """Device id of an instance that is still to be made: GPU, profile and first memory slice."""
    return f"{gpu_uuid}:{profile}:{start}"


@dataclass(slots=True, eq=False)
class Devices:
    """States of the GPUs of a node by position, and what of them is unhealthy or held down."""

    states: list[int]
    unhealthy: dict[int, str]

    @classmethod
    def empty(cls, kind: NodeKind) -> "Devices":
        """Nothing taken."""
        return cls([FREE] * len(kind.gpus), {})

    @classmethod
    def observed(cls, node: Node, kind: NodeKind, holds: Mapping[str, HoldDown], now: float) -> "Devices":
        """Nothing taken but what is not healthy."""
        found = cls.empty(kind)
        if node.topology is None or len(kind.gpus) != len(node.topology.gpus):
            return found
        for place, gpu in enumerate(node.topology.gpus):
            if gpu.health.state is not HealthState.HEALTHY:
                found.states[place] = kind.gpus[place].full
                found.unhealthy[place] = gpu.health.reason or gpu.health.state.value
            elif holds and held(holds, gpu_domain(gpu.uuid), now):
                found.states[place] = kind.gpus[place].full
                found.unhealthy[place] = "held down after a failure"
            elif kind.gpus[place].mode is GpuMode.INSTANCES:
                found.block_instances(place, gpu, holds, now)
        return found

    def block_instances(self, place: int, gpu: Gpu, holds: Mapping[str, HoldDown], now: float) -> None:
        """Take the instances of a GPU that are not healthy."""
        for number, instance in enumerate(gpu.instances):
            down = bool(holds) and held(holds, instance_domain(instance.uuid), now)
            if instance.health.state is not HealthState.HEALTHY or down:
                self.states[place] |= 1 << number
                self.unhealthy[place] = instance.health.reason or "held down after a failure"

    def key(self, kind: NodeKind) -> tuple[int, ...]:
        """What matters of the states: on a flat node not which GPU is in which."""
        return tuple(sorted(self.states)) if kind.flat else tuple(self.states)


def claim(
    devices: Devices, node: Node, kind: NodeKind, resource: str, amount: int, ids: Sequence[str]
) -> None:
    """Take `amount` devices of a resource: those of `ids` where they are known, else the last free ones."""
    if not kind.gpus or not (resource == GPU_RESOURCE or resource.startswith(MIG_RESOURCE_PREFIX)):
        return
    left = amount
    for device in ids:
        left -= _claim_named(devices, node, kind, device)
    for place in reversed(range(len(kind.gpus))):
        while left > 0 and _claim_any(devices, kind, place, resource):
            left -= 1
        if left <= 0:
            return


def _claim_named(devices: Devices, node: Node, kind: NodeKind, device: str) -> bool:
    topology = node.topology
    if topology is None or len(kind.gpus) != len(topology.gpus):
        return False
    uuid, _, piece = device.partition(":")
    for place, gpu in enumerate(topology.gpus):
        if gpu.uuid == uuid:
            if not piece:
                devices.states[place] = kind.gpus[place].full
                return True
            profile, _, start = piece.rpartition(":")
            return _claim_slices(devices, kind, place, profile, int(start))
        for number, instance in enumerate(gpu.instances):
            if instance.uuid == device:
                if kind.gpus[place].mode is GpuMode.INSTANCES:
                    devices.states[place] |= 1 << number
                    return True
                return _claim_slices(devices, kind, place, instance.profile, instance.start)
    return False


def _claim_slices(devices: Devices, kind: NodeKind, place: int, name: str, start: int) -> bool:
    profile = next((profile for profile in kind.gpus[place].profiles if profile.name == name), None)
    if profile is None:
        return False
    state = devices.states[place]
    compute = min((FULL & ~MASK) // COMPUTE_UNIT, (state >> COMPUTE_SHIFT & 7) + profile.compute_slices)
    media = state & MEDIA | (MEDIA if name.endswith("+me") else 0)
    devices.states[place] = (state & MASK | profile.mask(start)) | compute * COMPUTE_UNIT | media
    return True


def _claim_any(devices: Devices, kind: NodeKind, place: int, resource: str) -> bool:
    gpu = kind.gpus[place]
    state = devices.states[place]
    if gpu.mode is not GpuMode.INSTANCES:
        if resource != GPU_RESOURCE or state != FREE:
            return False
        devices.states[place] = FULL
        return True
    if not gpu.known and gpu.resource != resource:
        return False
    for number in reversed(range(len(gpu.pieces))):
        # Under MIG strategy single instances go by the name of whole GPUs.
        fits = resource in (gpu.resource, mig_resource(gpu.pieces[number].profile.name))
        if fits and not state >> number & 1:
            devices.states[place] |= 1 << number
            return True
    return False
