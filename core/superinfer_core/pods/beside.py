"""What stands beside the executors of a pool: their Service and their disruption budget. Pure."""

from typing import Any

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.pods.executor_pod import executor_labels, owner_reference


def executors_service(pool: ChipletPool) -> dict[str, Any]:
    """The headless Service whose EndpointSlices tell ingresses where a pool's executors are."""
    name = pool.metadata.name or ""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(pool, labels.executors_service_name(name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": False,
            "selector": executor_labels(name),
            "ports": [
                {
                    "name": port,
                    "port": number,
                    "targetPort": port,
                    "protocol": "TCP",
                    "appProtocol": protocol,
                }
                for port, number, protocol in (
                    (labels.SIDECAR_GRPC_PORT_NAME, labels.SIDECAR_GRPC_PORT, "kubernetes.io/h2c"),
                    (labels.METRICS_PORT_NAME, labels.METRICS_PORT, "http"),
                )
            ],
        },
    }


def disruption_budget(pool: ChipletPool) -> dict[str, Any]:
    """Evictions (a node drain) take one executor of a pool at a time."""
    name = pool.metadata.name or ""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(pool, labels.executors_service_name(name)),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": executor_labels(name)}},
    }


def _metadata(pool: ChipletPool, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": pool.metadata.namespace,
        "labels": executor_labels(pool.metadata.name or ""),
        "ownerReferences": [owner_reference(pool)],
    }
