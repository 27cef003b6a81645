"""What NVML says about a node at one moment, as plain values.

Promise: frozen; nothing here touches a driver, so tests and the report can make readings of their own.
"""

from dataclasses import dataclass

from superinfer_core.placement.node import LinkType, RecoveryAction


class DriverMissing(RuntimeError):
    """There is no NVIDIA driver here, or it does not answer."""


@dataclass(frozen=True, slots=True)
class ProfileReading:
    """A MIG profile the GPU offers, as the driver reports it."""

    name: str
    profile_id: int
    memory_slices: int
    compute_slices: int
    starts: tuple[int, ...]
    instances: int
    multiprocessors: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class InstanceReading:
    """A MIG device that exists; `profile_id` names its profile."""

    uuid: str
    gi_id: int
    profile_id: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU.

    Attributes:
        uuid, index, product, memory_mib: what it is; product as NVML says it.
        pci_bus_id: lower case, four digits of domain, as sysfs has it.
        numa_node: None where the system has none.
        mig_enabled, profiles, instances: MIG; profiles are empty where the driver does not tell.
        nvswitch: its NVLinks end in a switch.
        clique: cluster UUID and clique id of a multi-node fabric; None without one.
        lost: it stopped answering; everything else is from before.
        action: what the driver recommends; None where it cannot say.
        rows_pending, rows_failed: replacement of memory rows waits for a reset, or failed.
    """

    uuid: str
    index: int
    product: str
    memory_mib: int
    pci_bus_id: str
    numa_node: int | None
    mig_enabled: bool
    profiles: tuple[ProfileReading, ...] = ()
    instances: tuple[InstanceReading, ...] = ()
    nvswitch: bool = False
    clique: tuple[str, int] | None = None
    lost: bool = False
    action: RecoveryAction | None = None
    rows_pending: bool = False
    rows_failed: bool = False


@dataclass(frozen=True, slots=True)
class LinkReading:
    """The best connection of two GPUs, by index, the lower first."""

    a: int
    b: int
    type: LinkType
    count: int


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A node; `unreadable` names GPUs of which nothing is known, each with what NVML said."""

    driver_version: str
    gpus: tuple[GpuReading, ...]
    links: tuple[LinkReading, ...]
    unreadable: tuple[tuple[int, str], ...] = ()
