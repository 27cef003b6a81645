"""Asks the library everything through the real pynvml and writes the answers as JSON."""

import json
import sys
from collections.abc import Callable
from ctypes import byref, c_uint

import pynvml as n


def told(call: Callable[..., object], *arguments: object) -> object:
    """The answer, or the name of the error."""
    try:
        return call(*arguments)
    except n.NVMLError as error:
        return type(error).__name__


def placements(device: object, profile_id: int) -> list[list[int]]:
    count = c_uint(0)
    n.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, None, byref(count))
    array = (n.c_nvmlGpuInstancePlacement_t * max(count.value, 1))()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, array, byref(count))
    return sorted([array[at].start, array[at].size] for at in range(count.value))


def profiles(device: object) -> dict[str, dict[str, object]]:
    found = {}
    for index in range(n.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = n.nvmlDeviceGetGpuInstanceProfileInfo(device, index, version=2)
        except n.NVMLError:
            continue
        found[info.name.decode() if isinstance(info.name, bytes) else info.name] = {
            "id": info.id,
            "slices": info.sliceCount,
            "count": info.instanceCount,
            "sms": info.multiprocessorCount,
            "memory": info.memorySizeMB,
            "p2p": info.isP2pSupported,
            "placements": placements(device, info.id),
            "remaining": told(n.nvmlDeviceGetGpuInstanceRemainingCapacity, device, info.id),
        }
    return found


def instance(mig: object) -> dict[str, object]:
    parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    gi_id = n.nvmlDeviceGetGpuInstanceId(mig)
    info = n.nvmlGpuInstanceGetInfo(n.nvmlDeviceGetGpuInstanceById(parent, gi_id))
    attributes = n.nvmlDeviceGetAttributes(mig)
    return {
        "uuid": n.nvmlDeviceGetUUID(mig),
        "name": n.nvmlDeviceGetName(mig),
        "gi": gi_id,
        "ci": n.nvmlDeviceGetComputeInstanceId(mig),
        "parent": n.nvmlDeviceGetUUID(parent),
        "profile": info.profileId,
        "start": info.placement.start,
        "size": info.placement.size,
        "memory": attributes.memorySizeMB,
        "sms": attributes.multiprocessorCount,
        "total": n.nvmlDeviceGetMemoryInfo(mig).total,
        "is_mig": n.nvmlDeviceIsMigDeviceHandle(mig).value,
    }


def links(device: object) -> list[str]:
    found = []
    for link in range(n.NVML_NVLINK_MAX_LINKS):
        if told(n.nvmlDeviceGetNvLinkState, device, link) != 1:
            break
        kind = n.nvmlDeviceGetNvLinkRemoteDeviceType(device, link)
        remote = n.nvmlDeviceGetNvLinkRemotePciInfo(device, link).busId
        found.append("switch" if kind == n.NVML_NVLINK_DEVICE_TYPE_SWITCH else str(remote))
    return found


def gpu(device: object, others: list[object]) -> dict[str, object]:
    if told(n.nvmlDeviceGetUUID, device) == "NVMLError_GpuIsLost":
        return {"lost": True}
    by_nvlink = n.NVML_P2P_CAPS_INDEX_NVLINK
    fabric = n.c_nvmlGpuFabricInfo_v2_t()
    n.nvmlDeviceGetGpuFabricInfoV(device, byref(fabric))
    fields = n.nvmlDeviceGetFieldValues(device, [230, 91, 142, 143, 144, 145, 9])
    migs = []
    if told(n.nvmlDeviceGetMigMode, device) == [1, 1]:
        for at in range(n.nvmlDeviceGetMaxMigDeviceCount(device)):
            if told(n.nvmlDeviceGetMigDeviceHandleByIndex, device, at) == "NVMLError_NotFound":
                break
            migs.append(instance(n.nvmlDeviceGetMigDeviceHandleByIndex(device, at)))
    return {
        "uuid": n.nvmlDeviceGetUUID(device),
        "name": n.nvmlDeviceGetName(device),
        "memory_mib": n.nvmlDeviceGetMemoryInfo(device).total >> 20,
        "pci": n.nvmlDeviceGetPciInfo(device).busId,
        "numa": n.nvmlDeviceGetNumaNodeId(device),
        "mig_mode": told(n.nvmlDeviceGetMigMode, device),
        "migs": migs,
        "profiles": profiles(device),
        "links": links(device),
        "ancestors": [told(n.nvmlDeviceGetTopologyCommonAncestor, device, other) for other in others],
        "p2p_nvlink": [told(n.nvmlDeviceGetP2PStatus, device, other, by_nvlink) for other in others],
        "fabric": [bytes(fabric.clusterUuid).hex(), fabric.cliqueId, fabric.state],
        "fields": [[value.nvmlReturn, value.value.uiVal] for value in fields],
        "ecc": [n.nvmlDeviceGetTotalEccErrors(device, kind, 0) for kind in (0, 1)],
        "rows": n.nvmlDeviceGetRemappedRows(device),
        "compute": n.nvmlDeviceGetCudaComputeCapability(device),
    }


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def watch(count: int) -> None:
    """Print `count` events, one JSON line each, after a line that says that it watches."""
    devices = [n.nvmlDeviceGetHandleByIndex(at) for at in range(n.nvmlDeviceGetCount())]
    events = n.nvmlEventSetCreate()
    for device in devices:
        n.nvmlDeviceRegisterEvents(device, n.nvmlDeviceGetSupportedEventTypes(device), events)
    say("watching")
    for _ in range(count):
        data = n.nvmlEventSetWait(events, 20_000)
        handle = next(at for at, device in enumerate(devices) if _address(device) == _address(data.device))
        say(json.dumps([handle, data.eventType, data.eventData, data.gpuInstanceId]))
    n.nvmlEventSetFree(events)


def _address(handle: object) -> int:
    from ctypes import c_void_p, cast

    return cast(handle, c_void_p).value or 0


def main() -> None:
    n.nvmlInit()
    if len(sys.argv) > 1:
        watch(int(sys.argv[1]))
        return
    devices = [n.nvmlDeviceGetHandleByIndex(at) for at in range(n.nvmlDeviceGetCount())]
    answer = {
        "driver": n.nvmlSystemGetDriverVersion(),
        "nvml": n.nvmlSystemGetNVMLVersion(),
        "cuda": n.nvmlSystemGetCudaDriverVersion(),
        "gpus": [gpu(device, devices) for device in devices],
    }
    n.nvmlShutdown()
    say(json.dumps(answer, default=lambda value: value.decode() if isinstance(value, bytes) else str(value)))


if __name__ == "__main__":
    main()
