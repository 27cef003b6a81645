"""Three workers with different MOCK hardware, and what the cluster says about devices.

`different_nodes` gives the workers their descriptions, and puts everything
back: pools of other cases rely on the workers being alike.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final

from e2e.cluster import layout
from e2e.cluster.nodes import worker_names
from e2e.harness import release, samples
from e2e.harness.objects import Object, get, kubectl, listed, until

SWITCHED: Final = "NVIDIA-H200"
BRIDGED: Final = "NVIDIA-A100-80GB-PCIe"
MIXED: Final = "NVIDIA-H100-80GB-HBM3"
MIG_CONFIG: Final = "nvidia.com/mig.config"
PAIRS: Final = ((0, 2), (1, 3), (4, 5), (6, 7))

_FORMAT: Final = "superinfer-gpumock/v1"


def _mig(*instances: tuple[str, int]) -> dict[str, Any]:
    return {"mig": {"instances": [{"profile": profile, "start": start} for profile, start in instances]}}


def descriptions() -> dict[str, dict[str, Any]]:
    """The hardware of each worker: 8 H200 behind a switch by DRA, 8 bridged A100, 4 H100 with mixed MIG."""
    switched, bridged, mixed = worker_names()
    return {
        switched: {
            "format": _FORMAT,
            "product": "NVIDIA H200",
            "offer": "DRA",
            "nvlink": {"type": "NVSwitch", "linksPerGpu": 18},
            "gpus": [_mig(("3g.71gb", 0), ("3g.71gb", 4)), *({} for _ in range(7))],
        },
        bridged: {
            "format": _FORMAT,
            "product": "NVIDIA A100 80GB PCIe",
            "nvlink": {"type": "Direct", "pairs": [{"gpus": list(pair), "links": 12} for pair in PAIRS]},
            "gpus": [{} for _ in range(8)],
        },
        mixed: {
            "format": _FORMAT,
            "product": "NVIDIA H100 80GB HBM3",
            "gpus": [
                _mig(("3g.40gb", 0), ("3g.40gb", 4)),
                _mig(("3g.40gb", 4), ("2g.20gb", 0), ("1g.10gb", 2), ("1g.10gb", 3)),
                _mig(*(("1g.10gb", start) for start in range(7))),
                {},
            ],
        },
    }


@contextlib.contextmanager
def different_nodes() -> Iterator[None]:
    """The three workers as described above; all alike again afterwards."""
    classes = (layout.ROOT / "manifests" / "gpumock" / "deviceclasses.yaml").read_text()
    kubectl("apply", "--filename=-", stdin=classes)
    release.describe_mock_nodes({f"{node}.json": json.dumps(text) for node, text in descriptions().items()})
    _restart_agents()
    try:
        until(
            lambda: {item["metadata"]["name"]: _summary(item) for item in listed("nodetopology")},
            lambda seen: [seen.get(node) for node in worker_names()] == [(8, 2), (8, 0), (4, 13)],
            within_s=180,
            what="every worker's GPUs and instances are published",
        )
        yield
    finally:
        kubectl("label", "nodes", "--all", f"{MIG_CONFIG}-")
        release.install_mock_hardware()
        _restart_agents()


def _restart_agents() -> None:
    """Agents that start anew do not miss the GPUs that were described before."""
    release.restart("superinfer-node-agent", release.NAMESPACE)


def _summary(topology: Object) -> tuple[int, int]:
    status = topology.get("status") or {}
    return status.get("gpuCount", 0), status.get("instanceCount", 0)


def mock(node: str, *words: str) -> str:
    """Run a command of the GPU mock on a node."""
    pods = listed("pods", release.GPUMOCK_NAMESPACE, fields=f"spec.nodeName={node}")
    where = ("--namespace", release.GPUMOCK_NAMESPACE, pods[0]["metadata"]["name"])
    return kubectl("exec", *where, "--", "python", "-m", "superinfer_gpumock", *words)


def topology(node: str) -> Object:
    """What the node agent says about a node."""
    found: Object = get("nodetopology", node)["status"]
    return found


def device_health(node: str, uuid: str) -> str:
    """State of a GPU or MIG instance."""
    for gpu in topology(node)["gpus"]:
        if gpu["uuid"] == uuid:
            return str(gpu["health"]["state"])
        for instance in gpu.get("instances") or ():
            if instance["uuid"] == uuid:
                return str(instance["health"]["state"])
    raise KeyError(uuid)


def held(node: str) -> dict[str, tuple[str, list[str]]]:
    """Resource and devices of every pod of the node that holds some, as the kubelet says."""
    return {
        item["pod"]: (item["resource"], item["deviceIDs"]) for item in topology(node).get("allocations") or ()
    }


def pool(name: str, namespace: str, product: str, replicas: int, **spec: Any) -> Object:
    """A pool of engine stubs that wants one product."""
    allocation = spec.pop("allocation", "DevicePlugin")
    placement = {"nodeSelector": {"nvidia.com/gpu.product": product}, "allocation": allocation}
    document = samples.stub_pool(name, namespace, replicas=replicas)
    document["spec"] |= {"placement": placement, **spec}
    return document


def two_linked_gpus() -> dict[str, Any]:
    """A chiplet of two GPUs that must be linked."""
    return {"shape": "GPU", "count": 2, "interconnect": "NVLinkRequired"}


def plan() -> Object:
    """What `superinfer plan` makes of all that kubectl prints."""
    kinds = "nodes,nodetopologies,chipletpools,pods,slocontracts,configmaps"
    objects = kubectl("get", kinds, "--all-namespaces", "--output=yaml")
    command = [str(layout.ROOT / ".venv" / "bin" / "superinfer"), "plan", "-f", "-", "--output", "json"]
    done = subprocess.run(command, input=objects, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    made: Object = json.loads(done.stdout)
    return made


def timeless(status: Object) -> Object:
    """A pool's status without the times of its conditions, as `superinfer plan` foresees it."""
    conditions = [
        {name: value for name, value in one.items() if name != "lastTransitionTime"}
        for one in status.get("conditions") or ()
    ]
    return {**status, "conditions": sorted(conditions, key=lambda one: str(one["type"]))}
