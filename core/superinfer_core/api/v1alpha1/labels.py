"""Every label, annotation, finalizer, port and well-known name of SuperInfer in a cluster.

Written by the operator, read by the ingress, the node agent, the charts and the tests; one place, so that
they cannot drift apart. Plain constants: nothing here changes at run time.
"""

from typing import Final

from superinfer_core.api.v1alpha1.meta import GROUP

# The labels everybody knows.
APP_NAME_LABEL: Final = "app.kubernetes.io/name"
APP_COMPONENT_LABEL: Final = "app.kubernetes.io/component"
APP_MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
APP_NAME: Final = "superinfer"
COMPONENT_EXECUTOR: Final = "executor"
COMPONENT_INGRESS: Final = "ingress"
MANAGED_BY_OPERATOR: Final = "superinfer-operator"

# Our own, on executor pods, their Services and EndpointSlices.
POOL_LABEL: Final = f"{GROUP}/pool"
"""Name of the ChipletPool; the pool is `<namespace>/<value>`."""
EXECUTOR_LABEL: Final = f"{GROUP}/executor"
"""Name of the executor, which is also the pod's name."""
SLOT_LABEL: Final = f"{GROUP}/slot"
"""Which of the pool's replicas this is, from 0."""
INCARNATION_LABEL: Final = f"{GROUP}/incarnation"
"""How many pods this slot has had, from 1; never used twice."""
REVISION_LABEL: Final = f"{GROUP}/revision"
"""Hash of everything the pod was made from; another value means it has to be replaced."""
API_KEYS_LABEL: Final = f"{GROUP}/api-keys"
"""`true` on Secrets whose items are API keys: item name = key name, value = the plain key."""

CHIPLET_ANNOTATION: Final = f"{GROUP}/chiplet"
"""JSON on a pod: node, resource, count, device ids where chosen, fault domain."""
INCARNATIONS_ANNOTATION: Final = f"{GROUP}/incarnations"
"""JSON on a pool: the highest incarnation each slot has had, so that names are never used twice."""
ADMIN_ANNOTATION: Final = f"{GROUP}/admin"
"""`true` on a Secret of API keys makes them keys of administrators."""

DRAIN_FINALIZER: Final = f"{GROUP}/drain"
"""On pools and executor pods: removed once nothing runs there any more."""
OPERATOR_ANNOTATION_PREFIX: Final = f"operator.{GROUP}"
"""Where the operator keeps its own progress."""

# Writers of server-side apply.
OPERATOR_FIELD_MANAGER: Final = "superinfer-operator"
INGRESS_FIELD_MANAGER: Final = "superinfer-ingress"
NODE_AGENT_FIELD_MANAGER: Final = "superinfer-node-agent"

# What an executor pod listens on.
SIDECAR_GRPC_PORT: Final = 7443
SIDECAR_GRPC_PORT_NAME: Final = "grpc"
METRICS_PORT: Final = 9090
METRICS_PORT_NAME: Final = "metrics"

EXECUTOR_CONTAINER: Final = "executor"
SIDECAR_CONTAINER: Final = "sidecar"

# Objects of the release's own namespace.
CA_SECRET: Final = "superinfer-ca"  # noqa: S105 - the name of a Secret
INGRESS_TLS_SECRET: Final = "superinfer-ingress-tls"  # noqa: S105 - the name of a Secret
API_KEYS_SECRET: Final = "superinfer-api-keys"  # noqa: S105 - the name of a Secret
OPERATOR_LEASE: Final = "superinfer-operator"
"""Whoever holds it is the operator that works; the others stand by."""
API_KEYS_ITEM: Final = "keys.yaml"
ATTAINMENT_CONFIG_MAP_PREFIX: Final = "superinfer-attainment-"

INGRESS_TLS_NAME: Final = f"ingress.{GROUP}"
"""The DNS name in the ingress' certificate: the only one that may submit work to a sidecar."""

# What node labels of others mean to placement.
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
RACK_LABEL: Final = f"topology.{GROUP}/rack"
GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
GPU_CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
MIG_CONFIG_LABEL: Final = "nvidia.com/mig.config"
GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX: Final = "nvidia.com/mig-"


def executor_name(pool: str, slot: int, incarnation: int) -> str:
    """Name of an executor and its pod, `<pool>-<slot>-<incarnation>`."""
    return f"{pool}-{slot}-{incarnation}"


def executors_service_name(pool: str) -> str:
    """The headless Service whose EndpointSlices list a pool's executors."""
    return f"{pool}-executors"


def executor_tls_secret_name(pool: str) -> str:
    """Secret with the certificate of a pool's sidecars, in the pool's namespace."""
    return f"{pool}-executor-tls"


def executor_tls_name(pool: str, namespace: str) -> str:
    """The DNS name in that certificate; what peers check, although no pod ever resolves it."""
    return f"{pool}.{namespace}.pool.{GROUP}"


def executor_selector(pool: str) -> str:
    """Label selector of a pool's executors, as the scale subresource shows it."""
    return f"{APP_NAME_LABEL}={APP_NAME},{APP_COMPONENT_LABEL}={COMPONENT_EXECUTOR},{POOL_LABEL}={pool}"


def mig_resource(profile: str) -> str:
    """Extended resource of a MIG profile under the device plugin's `mixed` strategy."""
    return MIG_RESOURCE_PREFIX + profile.replace("+", ".")
