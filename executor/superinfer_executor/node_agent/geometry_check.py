"""`node-agent check`: what the driver says about MIG, beside what the tables expect.

Read only: profiles and possible placements are asked for, nothing is made, no mode is changed.
"""

from dataclasses import asdict
from typing import Any

from superinfer_core.placement.geometry import GpuProduct, MigProfile, product_named
from superinfer_executor.node_agent.reading import GpuReading, NodeReading, ProfileReading


def check(node: NodeReading) -> dict[str, Any]:
    """The findings of every GPU, as a JSON document."""
    return {
        "driver_version": node.driver_version,
        "mock": "MOCK" in node.driver_version,
        "gpus": [_gpu(gpu) for gpu in node.gpus],
    }


def _gpu(gpu: GpuReading) -> dict[str, Any]:
    product = product_named(gpu.product)
    return {
        "index": gpu.index,
        "product": gpu.product,
        "memory_mib": gpu.memory_mib,
        "mig_enabled": gpu.mig_enabled,
        "numa_node": gpu.numa_node,
        "nvswitch": gpu.nvswitch,
        "recovery_action": None if gpu.action is None else gpu.action.value,
        "known_product": product is not None,
        "profiles": [asdict(profile) for profile in gpu.profiles],
        "differences": [] if product is None else differences(gpu, product),
    }


def differences(gpu: GpuReading, product: GpuProduct) -> list[str]:
    """Where driver and table disagree, in words."""
    said = {profile.profile_id: profile for profile in gpu.profiles}
    found = []
    if gpu.profiles and gpu.memory_mib != product.memory_mib:
        found.append(f"memory of the GPU: driver {gpu.memory_mib} MiB, table {product.memory_mib} MiB")
    for expected in product.mig_profiles:
        actual = said.pop(expected.profile_id if expected.profile_id is not None else -1, None)
        if actual is None:
            found.append(f"{expected.name}: the driver does not offer it")
            continue
        found += _compare(expected, actual)
    found += [f"{extra.name} (id {extra.profile_id}): not in the table" for extra in said.values()]
    return found


def _compare(expected: MigProfile, actual: ProfileReading) -> list[str]:
    pairs: list[tuple[str, object, object]] = [
        ("name", actual.name, expected.name),
        ("compute slices", actual.compute_slices, expected.compute_slices),
        ("most instances", actual.instances, expected.max_instances),
        ("memory in MiB", actual.memory_mib, expected.memory_mib),
    ]
    if actual.starts:  # some drivers tell placements to privileged users only
        pairs += [
            ("memory slices", actual.memory_slices, expected.memory_slices),
            ("starts", actual.starts, expected.starts),
        ]
    if expected.multiprocessors:
        pairs.append(("multiprocessors", actual.multiprocessors, expected.multiprocessors))
    return [
        f"{expected.name} {what}: driver {driver}, table {table}"
        for what, driver, table in pairs
        if driver != table
    ]
