"""What an allocated ResourceClaim means on this node: which devices, and how a container gets to see them.

Promise: pure. Containers get their devices through CDI, one CDI device per claim with all devices of the
claim: what makes devices visible is one environment variable, and of several only the last would count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from superinfer_gpumock.dra.slices import DRIVER

CDI_KIND: Final = "k8s.gpu.nvidia.com/claim"
CDI_VERSION: Final = "0.6.0"


class ClaimUnusable(ValueError):
    """The claim is not allocated to devices of this node."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One device of a claim."""

    request: str
    device: str
    uuid: str
    cdi_id: str


def prepare(claim: Mapping[str, Any], uid: str, node_name: str, uuids: Mapping[str, str]) -> list[Prepared]:
    """The claim's devices here; raises ClaimUnusable for another claim or one not allocated to this node."""
    metadata = claim["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    if metadata["uid"] != uid:
        raise ClaimUnusable(f"claim {name} has uid {metadata['uid']}, not {uid}: it was made anew")
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        raise ClaimUnusable(f"claim {name} is not allocated")
    found = []
    for result in allocation.get("devices", {}).get("results", []):
        if result["driver"] != DRIVER:
            continue
        if result["pool"] != node_name or result["device"] not in uuids:
            raise ClaimUnusable(f"claim {name}: {result['pool']}/{result['device']} is not on {node_name}")
        request = str(result["request"])
        found.append(Prepared(request, result["device"], uuids[result["device"]], f"{CDI_KIND}={uid}"))
    return found


def cdi_spec(prepared: list[Prepared], uid: str) -> dict[str, Any]:
    """The CDI file of a claim."""
    visible = ",".join(item.uuid for item in prepared)
    env = [f"NVIDIA_VISIBLE_DEVICES={visible}", f"SUPERINFER_MOCK_GPUS={DRIVER}"]
    return {
        "cdiVersion": CDI_VERSION,
        "kind": CDI_KIND,
        "devices": [{"name": uid, "containerEdits": {"env": env}}],
    }
