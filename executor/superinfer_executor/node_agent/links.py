"""How the GPUs of a node are connected, from NVML.

Promise: every pair once, by its best connection. Links that end in a switch connect all such GPUs: the far
end of each is the switch, never a GPU, so counting GPU ends alone would find no NVLink on exactly the best-
connected machines. Blocking.
"""

from collections.abc import Mapping
from typing import Any, Final

import pynvml as nvml

from superinfer_core.placement.node import LinkType
from superinfer_executor.node_agent.reading import LinkReading

_BY_ANCESTOR: Final = {
    nvml.NVML_TOPOLOGY_INTERNAL: LinkType.PIX,
    nvml.NVML_TOPOLOGY_SINGLE: LinkType.PIX,
    nvml.NVML_TOPOLOGY_MULTIPLE: LinkType.PXB,
    nvml.NVML_TOPOLOGY_HOSTBRIDGE: LinkType.PHB,
    nvml.NVML_TOPOLOGY_NODE: LinkType.NODE,
    nvml.NVML_TOPOLOGY_SYSTEM: LinkType.SYS,
}


def link_ends(handle: Any) -> tuple[int, dict[str, int]]:
    """Active links to switches, and to other GPUs by PCI bus id in lower case."""
    to_switch = 0
    to_gpu: dict[str, int] = {}
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                to_switch += 1
                continue
            remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
        except nvml.NVMLError_GpuIsLost:
            raise
        except nvml.NVMLError:
            continue
        bus_id = (remote.decode() if isinstance(remote, bytes) else str(remote)).lower()
        to_gpu[bus_id] = to_gpu.get(bus_id, 0) + 1
    return to_switch, to_gpu


def switch_attached(handle: Any) -> bool:
    """Whether the GPU's NVLinks end in a switch."""
    return link_ends(handle)[0] > 0


def read_links(handles: Mapping[int, Any]) -> list[LinkReading]:
    """The best connection of every pair of GPUs that answer."""
    ends: dict[int, tuple[int, dict[str, int], str]] = {}
    for index, handle in handles.items():
        try:
            bus_id = nvml.nvmlDeviceGetPciInfo(handle).busId
            text = (bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)).lower()
            ends[index] = (*link_ends(handle), text)
        except nvml.NVMLError:
            continue
    found = []
    for first in sorted(ends):
        for second in sorted(ends):
            if first < second:
                found += _pair(handles, ends, first, second)
    return found


def _pair(
    handles: Mapping[int, Any], ends: Mapping[int, tuple[int, dict[str, int], str]], first: int, second: int
) -> list[LinkReading]:
    (switch_a, gpus_a, _), (switch_b, _, bus_b) = ends[first], ends[second]
    if direct := gpus_a.get(bus_b, 0):
        return [LinkReading(first, second, LinkType.NVLINK, direct)]
    if switch_a and switch_b:
        return [LinkReading(first, second, LinkType.NVSWITCH, min(switch_a, switch_b))]
    try:
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(handles[first], handles[second])
    except nvml.NVMLError:
        return []
    kind = _BY_ANCESTOR.get(level)
    return [] if kind is None else [LinkReading(first, second, kind, 0)]
