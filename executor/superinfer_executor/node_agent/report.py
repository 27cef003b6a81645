"""What the agent sees, for a person: GPUs, instances, health and the matrix of links. Pure."""

from superinfer_core.api.v1alpha1.nodetopology import GpuStatus, NodeTopologyStatus, TopologySource
from superinfer_core.placement.node import LinkType


def report(status: NodeTopologyStatus) -> str:
    """The status as text."""
    gpus = status.gpus or []
    mock = "  (MOCK: described in a file, not real)" if status.source is TopologySource.MOCK else ""
    lines = [f"driver {status.driver_version}{mock}", ""]
    for gpu in gpus:
        lines += _gpu(gpu)
    lines += ["", *_matrix(status)]
    if status.allocations:
        lines += ["", "held by"]
        for item in status.allocations:
            ids = ", ".join(item.device_ids or ())
            lines.append(f"  {item.namespace}/{item.pod} {item.container}: {item.resource} {ids}")
    for condition in status.conditions or ():
        lines += ["", f"{condition.type}={condition.status} {condition.reason}: {condition.message}"]
    return "\n".join(lines) + "\n"


def _gpu(gpu: GpuStatus) -> list[str]:
    numa = "?" if gpu.numa_node is None else str(gpu.numa_node)
    mode = "MIG" if gpu.mig_enabled else "whole"
    lines = [
        f"GPU {gpu.index}  {gpu.product}  {gpu.memory_mib} MiB  {gpu.pci_bus_id}  NUMA {numa}  {mode}  "
        f"{gpu.health.state}{f' {gpu.health.reason}' if gpu.health.reason else ''}  {gpu.uuid}"
    ]
    for made in gpu.instances or ():
        state = made.health.state if made.health else gpu.health.state
        lines.append(
            f"  instance {made.gi_id}  {made.profile}  slices {made.start}-{made.start + made.size - 1}  "
            f"{state}  {made.uuid}"
        )
    for profile in gpu.profiles or ():
        starts = ",".join(str(start) for start in profile.starts or ()) or "unknown"
        lines.append(
            f"  profile {profile.profile_id:>2}  {profile.name:<12} {{{starts}}}:{profile.memory_slices}  "
            f"{profile.multiprocessors} SMs  {profile.memory_mib} MiB"
        )
    return lines


def _matrix(status: NodeTopologyStatus) -> list[str]:
    gpus = status.gpus or []
    cells = {}
    for link in status.links or ():
        count = f"{link.count}" if link.count else ""
        kinds = {LinkType.NVLINK: f"NV{count}", LinkType.NVSWITCH: f"NV{count}*"}
        cells[frozenset((link.a, link.b))] = kinds.get(link.type, link.type.value)
    rows = ["      " + "".join(f"{f'GPU{gpu.index}':>7}" for gpu in gpus)]
    for first in gpus:
        row = "".join(
            f"{'X' if first is second else cells.get(frozenset((first.uuid, second.uuid)), '?'):>7}"
            for second in gpus
        )
        rows.append(f"GPU{first.index:<3}{row}")
    return [*rows, "NV<n>: n NVLinks, * through a switch"]
