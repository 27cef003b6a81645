"""The devices of a node as NVIDIA's DRA driver publishes them: GPUs, and MIG instances that exist.

Promise: pure. Driver, device, attribute and capacity names are NVIDIA's, so claims written for the mock
select the real thing; `mock: true` is the one attribute of our own. A device that is not healthy is left
out: taints on devices are not on by default yet.
"""

from typing import Any, Final

from superinfer_gpumock.description import Offer
from superinfer_gpumock.flat import copy_engines
from superinfer_gpumock.node import Instance, MockGpu, MockNode

DRIVER: Final = "gpu.nvidia.com"

Document = dict[str, Any]


def device_name(gpu: MockGpu, instance: Instance | None = None) -> str:
    """The name of a GPU or instance, as NVIDIA's driver makes it."""
    if instance is None:
        return f"gpu-{gpu.index}"
    profile = instance.profile
    shape = profile.name.replace(".", "").replace("+", "-")
    return f"gpu-{gpu.index}-mig-{shape}-{profile.profile_id}-{instance.start}"


def devices(node: MockNode) -> list[Document]:
    """All healthy devices; none where the node's devices go through the device plugin."""
    if node.offer is not Offer.DRA:
        return []
    found: list[Document] = []
    for gpu in node.gpus:
        if gpu.mig_enabled:
            found += [_mig(node, gpu, instance) for instance in gpu.instances if instance.healthy]
        elif gpu.healthy:
            found.append(_gpu(node, gpu))
    return found


def uuids(node: MockNode) -> dict[str, str]:
    """UUIDs by device name, of all devices whatever their health."""
    found: dict[str, str] = {}
    for gpu in node.gpus:
        found[device_name(gpu)] = gpu.uuid
        found |= {device_name(gpu, instance): instance.uuid for instance in gpu.instances}
    return found


def resource_slice(node: MockNode, *, node_uid: str, generation: int) -> Document:
    """The node's one ResourceSlice."""
    return {
        "metadata": {
            "name": f"{node.name}-{DRIVER}",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node_uid, "controller": True}
            ],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": generation, "resourceSliceCount": 1},
            "devices": devices(node),
        },
    }


def _gpu(node: MockNode, gpu: MockGpu) -> Document:
    return {
        "name": device_name(gpu),
        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": gpu.uuid}} | _common(node, gpu),
        "capacity": {"memory": {"value": f"{node.product.memory_mib}Mi"}},
    }


def _mig(node: MockNode, gpu: MockGpu, instance: Instance) -> Document:
    profile = instance.profile
    slices = range(instance.start, instance.start + profile.memory_slices)
    return {
        "name": device_name(gpu, instance),
        "attributes": {
            "type": {"string": "mig"},
            "uuid": {"string": instance.uuid},
            "parentUUID": {"string": gpu.uuid},
            "profile": {"string": profile.name},
        }
        | _common(node, gpu),
        "capacity": {
            "memory": {"value": f"{profile.memory_mib}Mi"},
            "multiprocessors": {"value": str(profile.multiprocessors)},
            "copyEngines": {"value": str(copy_engines(profile, node.product.architecture))},
        }
        | {f"memorySlice{number}": {"value": "1"} for number in slices},
    }


def _common(node: MockNode, gpu: MockGpu) -> Document:
    product = node.product
    major, minor = product.compute_capability
    bus_id = gpu.pci_bus_id.lower().removeprefix("0000")
    return {
        "mock": {"bool": True},
        "productName": {"string": product.name},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": product.architecture.capitalize()},
        "cudaComputeCapability": {"version": f"{major}.{minor}.0"},
        "driverVersion": {"version": _semantic(node.driver_version)},
        "cudaDriverVersion": {"version": _semantic(node.cuda_version)},
        "resource.kubernetes.io/pciBusID": {"string": bus_id},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci{bus_id[:7]}"},
    }


def _semantic(version: str) -> str:
    """Three numbers without leading zeros, as the API wants them."""
    parts = [str(int(part)) for part in version.split(".")]
    return ".".join((*parts, "0", "0")[:3])
