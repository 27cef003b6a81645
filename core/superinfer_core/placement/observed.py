"""From the API's NodeTopology to what placement decides from.

Promise: pure; every fact is taken as the driver reported it, and only what it left out is filled from the
tables of known products. `HardwareFacts` makes equal parts of different nodes one object, which keeps
planning large clusters fast; use one for all nodes.
"""

from collections.abc import Sequence

from superinfer_core.api.v1alpha1 import nodetopology as api
from superinfer_core.placement.geometry import MAX_INSTANCES, MigProfile, product_named
from superinfer_core.placement.node import (
    HEALTHY,
    Gpu,
    Health,
    HealthState,
    Link,
    MigInstance,
    RecoveryAction,
    Topology,
)


class HardwareFacts:
    """Turns NodeTopologies into topologies. Keeps one copy of each list of MIG profiles; one owner."""

    def __init__(self) -> None:
        self._profiles: dict[tuple[MigProfile, ...], tuple[MigProfile, ...]] = {}

    def topology(self, status: api.NodeTopologyStatus, *, dynamic_mig: bool = False) -> Topology:
        """The topology of one node; `dynamic_mig` where its DRA driver makes instances on demand."""
        gpus = tuple(self._gpu(gpu) for gpu in sorted(status.gpus or (), key=lambda gpu: gpu.index))
        number = {gpu.uuid: gpu.index for gpu in gpus}
        links = tuple(
            Link(number[link.a], number[link.b], link.type, link.count or 0)
            for link in status.links or ()
            if link.a in number and link.b in number
        )
        return Topology(gpus, links, dynamic_mig)

    def _gpu(self, gpu: api.GpuStatus) -> Gpu:
        product = gpu.product.replace(" ", "-")
        return Gpu(
            gpu.uuid,
            gpu.index,
            product,
            gpu.memory_mib,
            pci_bus_id=gpu.pci_bus_id or "",
            numa_node=gpu.numa_node if gpu.numa_node is not None and gpu.numa_node >= 0 else None,
            mig_enabled=gpu.mig_enabled,
            nvswitch=gpu.nvlink_switch,
            clique=f"{gpu.fabric.cluster_uuid}.{gpu.fabric.clique_id}" if gpu.fabric is not None else "",
            health=_health(gpu.health),
            profiles=self._profiles_of(product, gpu.profiles or ()),
            instances=tuple(
                MigInstance(one.uuid, one.profile, one.start, one.size, _health(one.health))
                for one in sorted(gpu.instances or (), key=lambda one: (one.start, one.uuid))
            ),
        )

    def _profiles_of(self, product: str, reported: Sequence[api.MigProfileStatus]) -> tuple[MigProfile, ...]:
        known = product_named(product)
        made = []
        for one in reported:
            table = known.profile(one.name) if known is not None else None
            made.append(
                MigProfile(
                    name=one.name,
                    memory_slices=one.memory_slices,
                    compute_slices=one.compute_slices,
                    starts=tuple(sorted(one.starts or (table.starts if table is not None else ()))),
                    memory_mib=one.memory_mib or (table.memory_mib if table is not None else 0),
                    max_instances=table.max_instances if table is not None else MAX_INSTANCES,
                    multiprocessors=one.multiprocessors or 0,
                    profile_id=one.profile_id,
                    verified=True,
                )
            )
        made.sort(key=lambda profile: (-profile.memory_slices, -profile.compute_slices, profile.name))
        profiles = tuple(made)
        return self._profiles.setdefault(profiles, profiles)


def _health(health: api.DeviceHealth | None) -> Health:
    if health is None:
        return HEALTHY
    action = health.recovery_action or RecoveryAction.NONE
    if health.state is HealthState.HEALTHY and action is RecoveryAction.NONE:
        return HEALTHY
    reason = health.reason or (f"Xid{health.xid}" if health.xid is not None else "")
    return Health(health.state, reason, action)
