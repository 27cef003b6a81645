"""What the agent publishes: NodeTopology's status from a reading, the health book and the allocations.

Promise: pure; equal inputs make equal documents, so a comparison tells whether anything has to be published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from superinfer_core.api.v1alpha1.meta import ConditionStatus
from superinfer_core.api.v1alpha1.nodetopology import (
    AllocationStatus,
    DeviceHealth,
    FabricStatus,
    GpuStatus,
    LinkStatus,
    MigInstanceStatus,
    MigProfileStatus,
    NodeConditionType,
    NodeReason,
    NodeTopologyStatus,
    TopologySource,
)
from superinfer_core.placement.geometry import product_named
from superinfer_core.placement.health_book import DeviceCondition, HealthBook, condition_of
from superinfer_core.placement.node import HealthState, LinkType, RecoveryAction
from superinfer_executor.node_agent.pod_resources import Allocation
from superinfer_executor.node_agent.reading import GpuReading, LinkReading, NodeReading, ProfileReading

_NVLINK = (LinkType.NVLINK, LinkType.NVSWITCH)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything there is to publish; None where it could not be found out."""

    node: NodeReading
    book: HealthBook
    allocations: tuple[Allocation, ...] | None


def linked_groups(node: NodeReading) -> dict[str, str]:
    """UUIDs of GPUs that reach each other over NVLink, each with the name of its group."""
    groups = {gpu.index: gpu.index for gpu in node.gpus}
    for link in node.links:
        if link.type in _NVLINK:
            old, new = groups.get(link.b, link.b), groups.get(link.a, link.a)
            groups = {index: new if group == old else group for index, group in groups.items()}
    return {gpu.uuid: f"links-{groups[gpu.index]}" for gpu in node.gpus}


def status_of(observed: Observed) -> NodeTopologyStatus:
    """The status without its times of observation and transition."""
    node = observed.node
    groups = linked_groups(node)
    gpus = [_gpu(gpu, observed.book, groups) for gpu in node.gpus]
    uuids = {gpu.index: gpu.uuid for gpu in node.gpus}
    return NodeTopologyStatus(
        source=TopologySource.MOCK if "MOCK" in node.driver_version else TopologySource.NVML,
        driver_version=node.driver_version,
        product=gpus[0].product if gpus else None,
        gpu_count=len(gpus),
        healthy_gpu_count=sum(gpu.health.state is HealthState.HEALTHY for gpu in gpus),
        instance_count=sum(len(gpu.instances or ()) for gpu in gpus),
        gpus=gpus,
        links=[_link(link, uuids) for link in node.links],
        allocations=[_allocation(allocation) for allocation in observed.allocations or ()],
        conditions=[_ready(observed, gpus)],
    )


def no_driver(message: str) -> NodeTopologyStatus:
    """The status of a node whose driver is missing."""
    condition = ConditionStatus(
        type=NodeConditionType.READY, status="False", reason=NodeReason.NO_DRIVER, message=message
    )
    return NodeTopologyStatus(gpu_count=0, healthy_gpu_count=0, instance_count=0, conditions=[condition])


def dated(status: NodeTopologyStatus, before: NodeTopologyStatus | None, now_s: float) -> NodeTopologyStatus:
    """The status with its times: of this observation, and of the condition's last transition."""
    now = _time(now_s)
    old = {condition.type: condition for condition in (before.conditions or () if before else ())}
    conditions = []
    for condition in status.conditions or ():
        known = old.get(condition.type)
        kept = known is not None and known.status == condition.status
        since = known.last_transition_time if known is not None and kept else now
        conditions.append(condition.model_copy(update={"last_transition_time": since}))
    return status.model_copy(update={"conditions": conditions, "observed_at": now})


def _ready(observed: Observed, gpus: Sequence[GpuStatus]) -> ConditionStatus:
    sick = [gpu for gpu in gpus if gpu.health.state is HealthState.UNHEALTHY]
    node = observed.node
    if not gpus and not node.unreadable:
        status, reason, message = "False", NodeReason.NO_GPU, "The driver shows no GPU."
    elif node.unreadable:
        status, reason = "False", NodeReason.READ_FAILED
        message = "; ".join(f"GPU {index}: {why}" for index, why in node.unreadable)
    elif observed.allocations is None:
        status, reason = "False", NodeReason.POD_RESOURCES_UNREACHABLE
        message = "The kubelet does not say who holds which device."
    elif sick:
        status, reason = "True", NodeReason.UNHEALTHY_GPU
        message = "; ".join(f"GPU {gpu.index}: {gpu.health.reason}" for gpu in sick)
    else:
        status, reason, message = "True", NodeReason.READY, f"{len(gpus)} GPUs read."
    return ConditionStatus(type=NodeConditionType.READY, status=status, reason=reason, message=message)


def _gpu(gpu: GpuReading, book: HealthBook, groups: dict[str, str]) -> GpuStatus:
    own = condition_of(book, gpu.uuid, None, groups, mig=gpu.mig_enabled)
    names = {profile.profile_id: profile.name for profile in gpu.profiles}
    return GpuStatus(
        uuid=gpu.uuid,
        index=gpu.index,
        product=gpu.product.replace(" ", "-"),
        memory_mib=gpu.memory_mib,
        pci_bus_id=gpu.pci_bus_id,
        numa_node=gpu.numa_node,
        mig_enabled=gpu.mig_enabled,
        fabric=None
        if gpu.clique is None
        else FabricStatus(cluster_uuid=gpu.clique[0], clique_id=gpu.clique[1]),
        nvlink_switch=gpu.nvswitch,
        health=_health(own, gpu.action),
        profiles=[_profile(profile, gpu.product) for profile in gpu.profiles],
        instances=[
            MigInstanceStatus(
                uuid=instance.uuid,
                profile=names.get(instance.profile_id, f"profile-{instance.profile_id}"),
                gi_id=instance.gi_id,
                start=instance.start,
                size=instance.size,
                health=_health(condition_of(book, gpu.uuid, instance.gi_id, groups), gpu.action),
            )
            for instance in gpu.instances
        ],
    )


def _profile(profile: ProfileReading, product: str) -> MigProfileStatus:
    """As the driver says; where it keeps placements to itself, sizes and starts are the known product's."""
    size, starts = profile.memory_slices, profile.starts
    known = product_named(product)
    if not starts and known is not None:
        same = (one for one in known.mig_profiles if one.profile_id == profile.profile_id)
        size, starts = next(((one.memory_slices, one.starts) for one in same), (size, starts))
    return MigProfileStatus(
        name=profile.name,
        profile_id=profile.profile_id,
        memory_slices=size,
        compute_slices=profile.compute_slices,
        starts=list(starts),
        multiprocessors=profile.multiprocessors,
        memory_mib=profile.memory_mib,
    )


def _health(condition: DeviceCondition, action: RecoveryAction | None) -> DeviceHealth:
    healthy = condition.state is HealthState.HEALTHY
    standing = condition.action
    if standing is RecoveryAction.NONE and action is not None and not healthy:
        standing = action
    return DeviceHealth(
        state=condition.state,
        reason=condition.reason or None,
        xid=condition.xid,
        recovery_action=None if standing is RecoveryAction.NONE else standing,
        since=None if condition.since_s is None else _time(condition.since_s),
    )


def _link(link: LinkReading, uuids: dict[int, str]) -> LinkStatus:
    first, second = sorted((uuids[link.a], uuids[link.b]))
    return LinkStatus(a=first, b=second, type=link.type, count=link.count or None)


def _allocation(allocation: Allocation) -> AllocationStatus:
    return AllocationStatus(
        namespace=allocation.namespace,
        pod=allocation.pod,
        container=allocation.container,
        resource=allocation.resource,
        device_ids=list(allocation.device_ids),
    )


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
