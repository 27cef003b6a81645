"""A resolved node as the flat lines the mock libnvidia-ml reads; one record a line, names last.

Promise: pure. The records are described beside the C reader (nvml/description.c); both change together.
"""

from typing import Final

from superinfer_core.placement.geometry import MigProfile
from superinfer_gpumock.description import Event, EventType
from superinfer_gpumock.faults import ACTION_CODES
from superinfer_gpumock.node import MockGpu, MockNode

MOCK_SUFFIX: Final = "-MOCK"

_ARCHITECTURES: Final = {"ampere": 7, "hopper": 9, "blackwell": 10}
_PROFILE_INDEX: Final = {19: 0, 14: 1, 9: 2, 5: 3, 0: 4, 20: 7, 15: 9}
"""NVML's number of a profile shape, by the id of the profile."""

_EVENT_BITS: Final = {
    EventType.SINGLE_BIT_ECC: 0x1,
    EventType.DOUBLE_BIT_ECC: 0x2,
    EventType.XID: 0x8,
    EventType.RECOVERY_ACTION: 0x8000,
}
NO_INSTANCE: Final = 0xFFFFFFFF

_SAME_SWITCH, _SEVERAL_SWITCHES, _HOST_BRIDGE, _SAME_NUMA, _ACROSS = 10, 20, 30, 40, 50


def flatten(node: MockNode) -> str:
    """All records of a node."""
    major, minor = (int(part) for part in node.cuda_version.split("."))
    product = node.product
    lines = [
        "format superinfer-gpumock-flat 1",
        f"driver {node.driver_version}{MOCK_SUFFIX}",
        f"cuda {major * 1000 + minor * 10}",
        f"product {product.multiprocessors} {product.compute_capability[0]} {product.compute_capability[1]}"
        f" {_ARCHITECTURES[product.architecture]} {product.memory_mib} {product.name}",
        f"switch {node.switch_links}",
    ]
    lines += [_profile(profile, product.architecture) for profile in product.mig_profiles]
    lines += [_gpu(gpu) for gpu in node.gpus]
    for gpu in node.gpus:
        lines += [
            f"instance {gpu.index} {item.gi_id} {item.profile.profile_id} {item.start} {item.uuid}"
            for item in gpu.instances
        ]
    for first in node.gpus:
        for second in node.gpus[first.index + 1 :]:
            lines.append(f"ancestor {first.index} {second.index} {_ancestor(first, second)}")
            if node.links[first.index][second.index]:
                lines.append(f"link {first.index} {second.index} {node.links[first.index][second.index]}")
    if node.fabric is not None:
        lines.append(f"fabric {node.fabric.clique_id} {node.fabric.cluster_uuid}")
    lines += [_event(event) for event in node.events]
    return "\n".join([*lines, "end"]) + "\n"


def copy_engines(profile: MigProfile, architecture: str) -> int:
    """Copy engines of an instance, as NVIDIA's guide lists them."""
    count = profile.compute_slices + (1 if profile.whole and architecture != "ampere" else 0)
    return 2 * count if architecture == "blackwell" else count


def _profile(profile: MigProfile, architecture: str) -> str:
    assert profile.profile_id is not None
    starts = ",".join(str(start) for start in profile.starts)
    return (
        f"profile {_PROFILE_INDEX[profile.profile_id]} {profile.profile_id} {profile.memory_slices}"
        f" {profile.compute_slices} {profile.max_instances} {profile.memory_mib} {profile.multiprocessors}"
        f" {copy_engines(profile, architecture)} {starts} {profile.name}"
    )


def _gpu(gpu: MockGpu) -> str:
    rows = gpu.remapped_rows
    return (
        f"gpu {gpu.index} {gpu.numa_node} {int(gpu.mig_enabled)} {int(gpu.lost)}"
        f" {ACTION_CODES[gpu.recovery_action]} {gpu.ecc.corrected} {gpu.ecc.uncorrected}"
        f" {rows.corrected} {rows.uncorrected} {int(rows.pending)} {int(rows.failed)}"
        f" {gpu.pci_bus_id} {gpu.uuid}"
    )


def _ancestor(first: MockGpu, second: MockGpu) -> int:
    shared = 0
    for ours, theirs in zip(first.pci_path, second.pci_path, strict=False):
        if ours != theirs:
            break
        shared += 1
    if shared and shared == len(first.pci_path) == len(second.pci_path) and shared > 1:
        return _SAME_SWITCH
    if shared > 1:
        return _SEVERAL_SWITCHES
    if shared == 1:
        return _HOST_BRIDGE
    return _SAME_NUMA if first.numa_node == second.numa_node else _ACROSS


def _event(event: Event) -> str:
    gi_id = NO_INSTANCE if event.gi_id is None else event.gi_id
    return f"event {event.sequence} {event.gpu} {gi_id} {_EVENT_BITS[event.type]} {event.data}"
