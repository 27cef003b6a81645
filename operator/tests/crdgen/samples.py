"""A document of each kind that states every field, and the smallest one."""

from copy import deepcopy
from typing import Any

Document = dict[str, Any]

CONTRACT: Document = {
    "apiVersion": "superinfer.dev/v1alpha1",
    "kind": "SLOContract",
    "metadata": {"name": "checkout-chat"},
    "spec": {
        "serviceID": "checkout-chat",
        "parentRef": {"name": "checkout"},
        "poolRef": {"name": "smollm", "namespace": "models"},
        "tier": "Gold",
        "priority": 100,
        "objectives": [
            {"metric": "TTFT", "percentile": 95, "targetMs": 200},
            {"metric": "TTFT", "percentile": 99, "targetMs": 300},
            {"metric": "ITL", "percentile": 99, "targetMs": 40},
            {"metric": "E2E", "percentile": 95, "targetMs": 2000},
        ],
        "maxJitterMs": 50,
        "availability": "99.95",
        "window": "1h",
        "onInfeasible": "Fallback",
        "fallbackRef": {"name": "checkout-bronze"},
        "quota": {"requestsPerSecond": 20, "tokensPerMinute": 100000, "concurrency": 8},
        "resources": {
            "minChiplets": 1,
            "product": "NVIDIA-H200",
            "memoryMiB": 16384,
            "isolation": "Shared",
        },
        "access": {"mode": "OwnKeys", "apiKeySecretRef": {"name": "checkout-keys"}},
    },
}

POOL: Document = {
    "apiVersion": "superinfer.dev/v1alpha1",
    "kind": "ChipletPool",
    "metadata": {"name": "smollm"},
    "spec": {
        "model": {
            "name": "smollm2",
            "source": {"path": "/models/smollm2"},
            "memory": {
                "weightsMiB": 257,
                "kvBytesPerToken": 23040,
                "kvHeads": 3,
                "overheadMiB": 2048,
                "kvTokens": 16384,
            },
        },
        "engine": {
            "type": "VLLM",
            "image": "docker.io/vllm/vllm-openai:v0.11.0",
            "maxModelLen": 2048,
            "maxNumSeqs": 8,
            "args": ["--enable-prefix-caching"],
            "env": [{"name": "HF_HUB_OFFLINE", "value": "1"}],
        },
        "chiplet": {"shape": "GPU", "count": 2, "interconnect": "NVLinkRequired"},
        "replicas": 2,
        "autoscaling": {"minReplicas": 1, "maxReplicas": 4},
        "isolation": "Device",
        "profileRef": {"name": "smollm2-h200"},
        "policyRef": {"name": "policy"},
        "defaultContractRef": {"name": "browse", "namespace": "shop"},
        "allowedNamespaces": ["shop"],
        "placement": {
            "allocation": "DevicePlugin",
            "spread": ["Node", "GPU"],
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
            "tolerations": [
                {
                    "key": "gpu",
                    "operator": "Equal",
                    "value": "yes",
                    "effect": "NoExecute",
                    "tolerationSeconds": 30,
                },
            ],
        },
        "checkpoint": {
            "intervalMs": 50,
            "replicas": 1,
            "budgetMBps": 400,
            "memoryMiB": 4096,
            "tiers": ["Gold", "Silver"],
            "peers": "OtherNode",
            "retainSeconds": 0,
        },
        "drainSeconds": 60,
        "podTemplate": {
            "metadata": {"labels": {"team": "search"}, "annotations": {"example.com/note": "x"}},
            "spec": {"containers": [{"name": "executor", "resources": {"limits": {"cpu": "2"}}}]},
        },
    },
}

SMALL_POOL: Document = {
    "apiVersion": "superinfer.dev/v1alpha1",
    "kind": "ChipletPool",
    "metadata": {"name": "small"},
    "spec": {"model": {"name": "m"}, "chiplet": {"shape": "CPU"}},
}

NODE: Document = {
    "apiVersion": "superinfer.dev/v1alpha1",
    "kind": "NodeTopology",
    "metadata": {"name": "node-1"},
    "status": {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "read",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "source": "Mock",
        "driverVersion": "580.1",
        "product": "NVIDIA-H200",
        "gpuCount": 2,
        "healthyGpuCount": 1,
        "instanceCount": 1,
        "gpus": [
            {
                "uuid": "GPU-a",
                "index": 0,
                "product": "NVIDIA-H200",
                "memoryMiB": 143771,
                "pciBusID": "0000:18:00.0",
                "numaNode": 0,
                "migEnabled": True,
                "fabric": {"clusterUUID": "c", "cliqueID": 1},
                "nvlinkSwitch": True,
                "health": {
                    "state": "Degraded",
                    "reason": "XidError",
                    "xid": 94,
                    "recoveryAction": "GPUReset",
                    "since": "2026-01-01T00:00:00Z",
                },
                "profiles": [
                    {
                        "name": "3g.71gb",
                        "profileID": 9,
                        "memorySlices": 4,
                        "computeSlices": 3,
                        "starts": [0, 4],
                        "multiprocessors": 60,
                        "memoryMiB": 71000,
                    }
                ],
                "instances": [
                    {
                        "uuid": "MIG-a",
                        "profile": "3g.71gb",
                        "giID": 1,
                        "start": 0,
                        "size": 4,
                        "health": {
                            "state": "Healthy",
                            "reason": "Recovered",
                            "xid": 94,
                            "recoveryAction": "None",
                            "since": "2026-01-01T00:00:00Z",
                        },
                    }
                ],
            }
        ],
        "links": [{"a": "GPU-a", "b": "GPU-b", "type": "NVSwitch", "count": 18}],
        "allocations": [
            {
                "namespace": "default",
                "pod": "smollm-0-1",
                "container": "executor",
                "resource": "nvidia.com/mig-3g.71gb",
                "deviceIDs": ["MIG-a"],
            }
        ],
        "observedAt": "2026-01-01T00:00:00Z",
    },
}

REMOVE = object()
"""As a value of `changed`: take the field away."""


def changed(document: Document, changes: dict[str, Any]) -> Document:
    """A copy with other values at dotted paths; numbers index lists."""
    copy = deepcopy(document)
    for path, value in changes.items():
        *parents, last = path.split(".")
        node: Any = copy
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        if value is REMOVE:
            node.pop(last, None)
        else:
            node[int(last) if isinstance(node, list) else last] = deepcopy(value)
    return copy
