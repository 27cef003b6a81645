"""Kinds of objects and their paths in the API. Pure.

Objects themselves stay plain mappings, as the server sent them: each program parses what it needs of them.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As `apiVersion` of an object."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Path of an object, or of a collection without `name`; of all namespaces without `namespace`.

        Raises:
            ValueError: an object of a namespaced kind without its namespace.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        elif self.namespaced and name is not None:
            msg = f"{self.plural} {name}: a namespace is needed"
            raise ValueError(msg)
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/" + "/".join(parts)


PODS: Final = Resource("", "v1", "pods", "Pod")
SERVICES: Final = Resource("", "v1", "services", "Service")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
POD_DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES: Final = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)

SLO_CONTRACTS: Final = Resource("superinfer.dev", "v1alpha1", "slocontracts", "SLOContract")
CHIPLET_POOLS: Final = Resource("superinfer.dev", "v1alpha1", "chipletpools", "ChipletPool")
NODE_TOPOLOGIES: Final = Resource(
    "superinfer.dev", "v1alpha1", "nodetopologies", "NodeTopology", namespaced=False
)
