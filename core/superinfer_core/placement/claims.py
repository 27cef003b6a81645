"""The ResourceClaim that selects exactly the devices a plan chose, for allocation by DRA.

Promise: pure. One request per device, each by its UUID, in NVIDIA's names; so the scheduler has nothing to
choose and the claim is only ever allocated on the node that has the devices.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape

DRA_DRIVER: Final = "gpu.nvidia.com"
_CLASSES: Final = {ChipletShape.GPU: "gpu.nvidia.com", ChipletShape.MIG: "mig.nvidia.com"}
_UUID: Final = re.compile(r"^(GPU|MIG)-[0-9A-Za-z-]{1,60}$")


def claim_spec(device_uuids: Sequence[str], shape: ChipletShape) -> dict[str, Any]:
    """The spec of a ResourceClaim for these devices; ValueError for what cannot be claimed."""
    if shape not in _CLASSES:
        raise ValueError(f"shape {shape} has no devices to claim; use allocation: DevicePlugin")
    if not device_uuids or len(set(device_uuids)) != len(device_uuids):
        raise ValueError(f"devices to claim must be given once each, got {list(device_uuids)}")
    for uuid in device_uuids:
        if not _UUID.match(uuid):
            raise ValueError(f"{uuid!r} is no UUID of a GPU or MIG device that exists")
    return {
        "devices": {
            "requests": [
                {
                    "name": f"device-{number}",
                    "exactly": {
                        "deviceClassName": _CLASSES[shape],
                        "allocationMode": "ExactCount",
                        "count": 1,
                        "selectors": [
                            {"cel": {"expression": f'device.attributes["{DRA_DRIVER}"].uuid == "{uuid}"'}}
                        ],
                    },
                }
                for number, uuid in enumerate(device_uuids)
            ]
        }
    }
