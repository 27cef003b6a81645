"""The labels GPU feature discovery would set on a node of this description.

Promise: pure; label values are valid, and the driver version says MOCK.
"""

from collections.abc import Mapping
from typing import Final

from superinfer_core.api.v1alpha1.labels import GPU_RESOURCE, mig_resource
from superinfer_gpumock.description import MigStrategy
from superinfer_gpumock.flat import MOCK_SUFFIX
from superinfer_gpumock.node import Instance, MockNode

MOCK_LABEL: Final = "gpumock.superinfer.dev/mock"


def node_labels(node: MockNode) -> Mapping[str, str]:
    """All labels of the node."""
    product = node.product
    driver = node.driver_version.split(".")
    cuda = node.cuda_version.split(".")
    labels = {
        MOCK_LABEL: "true",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product.label,
        "nvidia.com/gpu.count": str(len(node.gpus)),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.memory": str(product.memory_mib),
        "nvidia.com/gpu.family": product.architecture,
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.machine": "MOCK",
        "nvidia.com/gpu.compute.major": str(product.compute_capability[0]),
        "nvidia.com/gpu.compute.minor": str(product.compute_capability[1]),
        "nvidia.com/cuda.driver-version.full": node.driver_version + MOCK_SUFFIX,
        "nvidia.com/cuda.driver-version.major": driver[0],
        "nvidia.com/cuda.driver-version.minor": driver[1],
        "nvidia.com/cuda.driver-version.revision": driver[2] if len(driver) > 2 else "",
        "nvidia.com/cuda.runtime-version.full": node.cuda_version,
        "nvidia.com/cuda.runtime-version.major": cuda[0],
        "nvidia.com/cuda.runtime-version.minor": cuda[1],
        "nvidia.com/mig.capable": str(bool(product.mig_profiles)).lower(),
        "nvidia.com/mig.strategy": node.mig_strategy.value,
        "nvidia.com/mps.capable": "false",
    }
    if node.fabric is not None:
        labels["nvidia.com/gpu.clique"] = f"{node.fabric.cluster_uuid}.{node.fabric.clique_id}"
    instances = [instance for gpu in node.gpus if gpu.mig_enabled for instance in gpu.instances]
    if node.mig_strategy is MigStrategy.MIXED:
        for instance in instances:
            labels.update(_mixed(node, instance, instances))
    elif node.mig_strategy is MigStrategy.SINGLE and instances:
        labels.update(_sizes(GPU_RESOURCE, instances[0]))
        labels["nvidia.com/gpu.product"] = _product(node, instances[0])
        labels["nvidia.com/gpu.count"] = str(len(instances))
    return labels


def _mixed(node: MockNode, instance: Instance, instances: list[Instance]) -> dict[str, str]:
    base = mig_resource(instance.profile.name)
    count = sum(other.profile.name == instance.profile.name for other in instances)
    return {
        f"{base}.product": _product(node, instance),
        f"{base}.count": str(count),
        f"{base}.replicas": "1",
        f"{base}.sharing-strategy": "none",
        **_sizes(base, instance),
    }


def _product(node: MockNode, instance: Instance) -> str:
    return f"{node.product.label}-MIG-{instance.profile.name.replace('+', '.')}"


def _sizes(base: str, instance: Instance) -> dict[str, str]:
    profile = instance.profile
    return {
        f"{base}.memory": str(profile.memory_mib),
        f"{base}.multiprocessors": str(profile.multiprocessors),
        f"{base}.slices.gi": str(profile.compute_slices),
        f"{base}.slices.ci": str(profile.compute_slices),
    }
