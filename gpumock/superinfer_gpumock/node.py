"""A described node with everything filled in: what the drivers, plugins and the mock library show.

Promise: `resolve` is pure and deterministic; the same description and node name give the same UUIDs
everywhere. MIG instances that hardware could not hold are refused, with the GPU, the profile and the start.
Frozen.
"""

import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Final

from superinfer_core.placement.geometry import COMPUTE_SLICES, PRODUCTS, GpuProduct, MigProfile
from superinfer_core.placement.health import FaultLevel, judge_action, judge_xid
from superinfer_core.placement.node import HealthState, RecoveryAction
from superinfer_gpumock.description import (
    Description,
    DescriptionInvalid,
    EccCounts,
    Event,
    Fabric,
    Gpu,
    Mig,
    MigInstance,
    MigStrategy,
    NvSwitch,
    Offer,
    RemappedRows,
)

_NAMESPACE: Final = uuid.UUID("5a1f7c1e-9d0b-4a57-8a38-0d7d5c0d6f5e")


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance of a GPU."""

    uuid: str
    gi_id: int
    profile: MigProfile
    start: int
    healthy: bool


@dataclass(frozen=True, slots=True)
class MockGpu:
    """A GPU with its place in the machine."""

    index: int
    uuid: str
    pci_bus_id: str
    numa_node: int
    pci_path: tuple[str, ...]
    mig_enabled: bool
    instances: tuple[Instance, ...]
    healthy: bool
    lost: bool
    recovery_action: RecoveryAction
    ecc: EccCounts
    remapped_rows: RemappedRows


@dataclass(frozen=True, slots=True)
class MockNode:
    """A node; `links[a][b]` is how many NVLinks lead straight from one GPU to another."""

    name: str
    product: GpuProduct
    driver_version: str
    cuda_version: str
    offer: Offer
    mig_strategy: MigStrategy
    gpus: tuple[MockGpu, ...]
    links: tuple[tuple[int, ...], ...]
    switch_links: int
    fabric: Fabric | None
    events: tuple[Event, ...]


def derived_uuid(*parts: object) -> str:
    """A UUID that depends on nothing but its parts."""
    return str(uuid.uuid5(_NAMESPACE, "/".join(str(part) for part in parts)))


def resolve(description: Description, node_name: str) -> MockNode:
    """Fill in what was left out; raises DescriptionInvalid for hardware that cannot be."""
    product = PRODUCTS.get(description.product)
    if product is None:
        raise DescriptionInvalid(
            f"product: unknown {description.product!r}; known are {', '.join(sorted(PRODUCTS))}"
        )
    gpus = tuple(
        _gpu(description, product, node_name, index, gpu) for index, gpu in enumerate(description.gpus)
    )
    _check_unique(gpus)
    return MockNode(
        name=node_name,
        product=product,
        driver_version=description.driver_version,
        cuda_version=description.cuda_version,
        offer=description.offer,
        mig_strategy=description.mig_strategy,
        gpus=gpus,
        links=_links(description),
        switch_links=description.nvlink.links_per_gpu if isinstance(description.nvlink, NvSwitch) else 0,
        fabric=description.fabric,
        events=description.events,
    )


def _gpu(description: Description, product: GpuProduct, node_name: str, index: int, gpu: Gpu) -> MockGpu:
    whole_gpu_fault = gpu.lost or judge_action(gpu.recovery_action).state is HealthState.UNHEALTHY
    hit: set[int | None] = set()
    for fault in description.faults:
        verdict = judge_xid(fault.xid, fault.gi_id)
        if fault.gpu == index and verdict.state is HealthState.UNHEALTHY:
            hit.add(fault.gi_id if verdict.level is FaultLevel.INSTANCE else None)
    healthy = not whole_gpu_fault and None not in hit
    mig = gpu.mig or Mig(enabled=False)
    if mig.enabled and not product.mig_profiles:
        raise DescriptionInvalid(f"gpus.{index}.mig.enabled: {product.name} has no MIG; set it to false")
    gpu_uuid = gpu.uuid or f"GPU-{derived_uuid(node_name, product.name, index)}"
    half = max(1, (len(description.gpus) + 1) // 2)
    return MockGpu(
        index=index,
        uuid=gpu_uuid,
        pci_bus_id=gpu.pci_bus_id or f"00000000:{0x10 + 0x0B * index:02X}:00.0",
        numa_node=gpu.numa_node if gpu.numa_node is not None else index // half,
        pci_path=gpu.pci_path,
        mig_enabled=mig.enabled,
        instances=_instances(product, gpu_uuid, index, mig, healthy=healthy, hit=hit),
        healthy=healthy,
        lost=gpu.lost,
        recovery_action=gpu.recovery_action,
        ecc=gpu.ecc,
        remapped_rows=gpu.remapped_rows,
    )


def _instances(
    product: GpuProduct, gpu_uuid: str, index: int, mig: Mig, *, healthy: bool, hit: set[int | None]
) -> tuple[Instance, ...]:
    profiles = {profile.name: profile for profile in product.mig_profiles}
    taken: dict[int, str] = {}
    made: list[Instance] = []
    given = {item.gi_id for item in mig.instances if item.gi_id is not None}
    free_ids = iter(number for number in range(1, 64) if number not in given)
    for at, wanted in enumerate(mig.instances):
        path = f"gpus.{index}.mig.instances.{at}"
        profile = _profile(profiles, wanted, path, product)
        for memory_slice in range(wanted.start, wanted.start + profile.memory_slices):
            if memory_slice in taken:
                raise DescriptionInvalid(
                    f"{path}: {profile.name} at {wanted.start} overlaps {taken[memory_slice]}"
                    f" on memory slice {memory_slice}"
                )
            taken[memory_slice] = f"{profile.name} at {wanted.start}"
        gi_id = wanted.gi_id if wanted.gi_id is not None else next(free_ids)
        made.append(
            Instance(
                uuid=wanted.uuid or f"MIG-{derived_uuid(gpu_uuid, profile.name, wanted.start)}",
                gi_id=gi_id,
                profile=profile,
                start=wanted.start,
                healthy=healthy and gi_id not in hit,
            )
        )
    _check_layout(index, made)
    return tuple(made)


def _profile(
    profiles: dict[str, MigProfile], wanted: MigInstance, path: str, product: GpuProduct
) -> MigProfile:
    profile = profiles.get(wanted.profile)
    if profile is None:
        known = ", ".join(sorted(profiles))
        raise DescriptionInvalid(f"{path}.profile: {product.name} has no {wanted.profile!r}; it has {known}")
    if wanted.start not in profile.starts:
        starts = ", ".join(str(start) for start in profile.starts)
        raise DescriptionInvalid(f"{path}.start: {profile.name} starts at {starts}, not at {wanted.start}")
    return profile


def _check_layout(index: int, instances: list[Instance]) -> None:
    path = f"gpus.{index}.mig.instances"
    computing = sum(instance.profile.compute_slices for instance in instances)
    if computing > COMPUTE_SLICES:
        raise DescriptionInvalid(f"{path}: {computing} compute slices, a GPU has {COMPUTE_SLICES}")
    for name, count in Counter(instance.profile.name for instance in instances).items():
        limit = next(i.profile.max_instances for i in instances if i.profile.name == name)
        if count > limit:
            raise DescriptionInvalid(f"{path}: {count} x {name}, at most {limit} fit a GPU")
    for gi_id, count in Counter(instance.gi_id for instance in instances).items():
        if count > 1:
            raise DescriptionInvalid(f"{path}: giId {gi_id} is given {count} times; make it unique")


def _check_unique(gpus: tuple[MockGpu, ...]) -> None:
    uuids = Counter([gpu.uuid for gpu in gpus] + [item.uuid for gpu in gpus for item in gpu.instances])
    uuids += Counter(gpu.pci_bus_id for gpu in gpus)
    for value, count in uuids.items():
        if count > 1:
            raise DescriptionInvalid(f"gpus: {value} is given {count} times; UUIDs and PCI ids are unique")


def _links(description: Description) -> tuple[tuple[int, ...], ...]:
    count = len(description.gpus)
    matrix = [[0] * count for _ in range(count)]
    if description.nvlink is not None and not isinstance(description.nvlink, NvSwitch):
        for bridge in description.nvlink.pairs:
            first, second = bridge.gpus
            matrix[first][second] = matrix[second][first] = bridge.links
    return tuple(tuple(row) for row in matrix)
