"""NVML through pynvml: readings of the node and its events.

Promise: reads only; MIG settings are never changed. Missing features are absent values, never errors:
drivers and GPUs differ. A GPU that is lost keeps the facts it had. Blocking, one thread at a time, except
that `wait` may run in a thread of its own.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from ctypes import byref, c_uint, c_void_p, cast
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml as nvml

from superinfer_core.placement.health import DeviceEvent, EventKind
from superinfer_core.placement.node import RecoveryAction
from superinfer_executor.node_agent.links import read_links, switch_attached
from superinfer_executor.node_agent.reading import (
    DriverMissing,
    GpuReading,
    InstanceReading,
    LinkReading,
    NodeReading,
    ProfileReading,
)

T = TypeVar("T")

ACTIONS: Final = {
    0: RecoveryAction.NONE,
    1: RecoveryAction.GPU_RESET,
    2: RecoveryAction.NODE_REBOOT,
    3: RecoveryAction.DRAIN_P2P,
    4: RecoveryAction.DRAIN_AND_RESET,
    5: RecoveryAction.RECOVER_IMEX_DOMAIN,
    6: RecoveryAction.BUS_RESET,
    7: RecoveryAction.SYSTEM_REBOOT,
}
_RECOVERY_ACTION_FIELD: Final = 230
_NO_INSTANCE: Final = 0xFFFFFFFF
_NVIDIA: Final = "0x10de"
_FABRIC_COMPLETED: Final = 3
_WIRING_S: Final = 60.0
_EVENTS: Final = (
    nvml.nvmlEventTypeXidCriticalError
    | nvml.nvmlEventTypeDoubleBitEccError
    | nvml.nvmlEventTypeSingleBitEccError
    | 0x8000  # recovery action; newer drivers only
)


class Driver:
    """An open NVML; close it with `close`."""

    def __init__(self, devices: Path = Path("/sys/bus/pci/devices")) -> None:
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise DriverMissing(f"NVML cannot be opened: {error}") from error
        self._devices = devices
        self._known: dict[int, GpuReading] = {}
        self._links: dict[tuple[int, int], LinkReading] = {}
        self._linked: set[int] = set()
        self._profiles: dict[tuple[str, bool], tuple[tuple[ProfileReading, ...], bool]] = {}
        self._wiring_until_s = 0.0
        self._events: Any = None
        self._registered: set[int] = set()

    def close(self) -> None:
        """Give NVML back."""
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

    @property
    def version(self) -> str:
        """The driver's version."""
        return _text(nvml.nvmlSystemGetDriverVersion())

    def read(self) -> NodeReading:
        """Everything about the node now; raises DriverMissing where the driver is gone."""
        try:
            version = self.version
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise DriverMissing(f"NVML does not answer: {error}") from error
        self._refresh_wiring()
        handles: dict[int, Any] = {}
        read: dict[int, GpuReading] = {}
        refused: dict[int, str] = {}
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                read[index] = self._gpu(handle, index)
                handles[index] = handle
            except nvml.NVMLError as error:
                refused[index] = str(error)
        self._take(read)
        if not self._links or any(index not in self._linked for index in handles):
            self._links |= {(link.a, link.b): link for link in read_links(handles)}
            self._linked |= set(handles)
        unreadable = tuple((index, why) for index, why in refused.items() if index not in self._known)
        gpus = tuple(self._known[index] for index in sorted(self._known))
        return NodeReading(
            version, gpus, tuple(self._links[pair] for pair in sorted(self._links)), unreadable
        )

    def _take(self, read: Mapping[int, GpuReading]) -> None:
        """GPUs that do not answer any more are lost; where all are others, the hardware was exchanged."""
        before = {gpu.uuid for gpu in self._known.values()}
        if read and before.isdisjoint(gpu.uuid for gpu in read.values()):
            self._known, self._links, self._linked = {}, {}, set()
        lost = {index: replace(gpu, lost=True) for index, gpu in self._known.items() if index not in read}
        self._known = {**lost, **read}

    def _refresh_wiring(self) -> None:
        """Profiles and links hardly ever change and are many calls: asked for once a minute."""
        now_s = time.monotonic()
        if now_s >= self._wiring_until_s:
            self._wiring_until_s = now_s + _WIRING_S
            self._profiles.clear()
            self._linked.clear()

    def _gpu(self, handle: Any, index: int) -> GpuReading:
        bus_id = _text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower().removeprefix("0000")
        mig = _or(None, nvml.nvmlDeviceGetMigMode, handle)
        mig_enabled = mig is not None and mig[0] == 1
        action = self._action(handle)
        rows = _or(None, nvml.nvmlDeviceGetRemappedRows, handle)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        if (uuid, mig_enabled) not in self._profiles:
            self._profiles[uuid, mig_enabled] = read_profiles(handle), switch_attached(handle)
        profiles, nvswitch = self._profiles[uuid, mig_enabled]
        return GpuReading(
            uuid=uuid,
            index=index,
            product=_text(nvml.nvmlDeviceGetName(handle)),
            memory_mib=nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
            pci_bus_id=bus_id,
            numa_node=self._numa_node(handle, bus_id),
            mig_enabled=mig_enabled,
            profiles=profiles,
            instances=_instances(handle) if mig_enabled else (),
            nvswitch=nvswitch,
            clique=_clique(handle),
            action=action,
            rows_pending=bool(rows and rows[2]),
            rows_failed=bool(rows and rows[3]),
        )

    def _action(self, handle: Any) -> RecoveryAction | None:
        values = _or(None, nvml.nvmlDeviceGetFieldValues, handle, [_RECOVERY_ACTION_FIELD])
        if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
            return None
        return ACTIONS.get(values[0].value.uiVal, RecoveryAction.NODE_REBOOT)

    def _numa_node(self, handle: Any, bus_id: str) -> int | None:
        """From the kernel, as device plugins do; NVML's own call is for GPUs whose memory is a node."""
        device = self._devices / bus_id
        with suppress(OSError, ValueError):
            if (device / "vendor").read_text().strip() == _NVIDIA:
                node = int((device / "numa_node").read_text())
                return node if node >= 0 else None
        found = _or(None, nvml.nvmlDeviceGetNumaNodeId, handle)
        return None if found is None else int(found)

    def wait(self, timeout_ms: int) -> DeviceEvent | None:
        """The next event health follows; None when there was none in time."""
        if self._events is None:
            self._events = nvml.nvmlEventSetCreate()
        self._register()
        try:
            data = nvml.nvmlEventSetWait(self._events, timeout_ms)
        except (nvml.NVMLError_Timeout, nvml.NVMLError_GpuIsLost):
            return None  # that a GPU is lost shows when it is read
        except nvml.NVMLError as error:
            raise DriverMissing(f"NVML tells no events: {error}") from error
        return self._event(data)

    def _register(self) -> None:
        for index in range(nvml.nvmlDeviceGetCount()):
            if index in self._registered:
                continue
            with suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                wanted = _EVENTS & nvml.nvmlDeviceGetSupportedEventTypes(handle)
                nvml.nvmlDeviceRegisterEvents(handle, wanted, self._events)
                self._registered.add(index)

    def _event(self, data: Any) -> DeviceEvent | None:
        index = self._index_of(data.device)
        if index is None or index not in self._known:
            return None
        uuid = self._known[index].uuid
        gi_id = None if data.gpuInstanceId == _NO_INSTANCE else int(data.gpuInstanceId)
        match data.eventType:
            case nvml.nvmlEventTypeXidCriticalError:
                return DeviceEvent(EventKind.XID, uuid, gi_id, xid=int(data.eventData))
            case nvml.nvmlEventTypeDoubleBitEccError:
                return DeviceEvent(EventKind.DOUBLE_BIT_ECC, uuid, gi_id)
            case nvml.nvmlEventTypeSingleBitEccError:
                return DeviceEvent(EventKind.SINGLE_BIT_ECC, uuid, gi_id)
            case _:
                action = ACTIONS.get(int(data.eventData), RecoveryAction.NODE_REBOOT)
                return DeviceEvent(EventKind.RECOVERY_ACTION, uuid, action=action)

    def _index_of(self, device: Any) -> int | None:
        """By address: a lost GPU can no longer be asked for its index."""
        wanted = cast(device, c_void_p).value
        for index in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):
                if cast(nvml.nvmlDeviceGetHandleByIndex(index), c_void_p).value == wanted:
                    return index
        return None


def read_profiles(handle: Any) -> tuple[ProfileReading, ...]:
    """MIG profiles with their placements; empty where the driver does not tell."""
    found = []
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = _or(None, nvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
        if info is None:
            continue
        placements: list[tuple[int, int]] = _or([], _placements, handle, info.id)
        found.append(
            ProfileReading(
                name=_text(info.name).removeprefix("MIG ").strip(),
                profile_id=info.id,
                memory_slices=placements[0][1] if placements else 0,
                compute_slices=info.sliceCount,
                starts=tuple(sorted(start for start, _ in placements)),
                instances=info.instanceCount,
                multiprocessors=info.multiprocessorCount,
                memory_mib=info.memorySizeMB,
            )
        )
    return tuple(found)


def _placements(handle: Any, profile_id: int) -> list[tuple[int, int]]:
    count = c_uint(0)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, byref(count))
    array = (nvml.c_nvmlGpuInstancePlacement_t * max(count.value, 1))()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, array, byref(count))
    return [(int(array[at].start), int(array[at].size)) for at in range(count.value)]


def _instances(handle: Any) -> tuple[InstanceReading, ...]:
    found = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        mig = _or(None, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if mig is None:
            continue
        gi_id = nvml.nvmlDeviceGetGpuInstanceId(mig)
        info = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(handle, gi_id))
        found.append(
            InstanceReading(
                uuid=_text(nvml.nvmlDeviceGetUUID(mig)),
                gi_id=gi_id,
                profile_id=info.profileId,
                start=info.placement.start,
                size=info.placement.size,
            )
        )
    return tuple(found)


def _clique(handle: Any) -> tuple[str, int] | None:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    if _or(None, nvml.nvmlDeviceGetGpuFabricInfoV, handle, byref(info)) is None:
        return None
    raw = bytes(info.clusterUuid)
    if info.state != _FABRIC_COMPLETED or not any(raw):
        return None
    text = raw.hex()
    cluster = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return cluster, int(info.cliqueId)


def _or(absent: T, call: Any, *arguments: Any) -> Any | T:
    """The answer, or `absent` where the GPU or driver has no such thing; a lost GPU is told apart."""
    try:
        return call(*arguments)
    except nvml.NVMLError_GpuIsLost:
        raise
    except nvml.NVMLError:
        return absent


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
