"""EndpointSlices as executors, and as the number of replicas of this ingress. Pure.

A pod is an executor for as long as its slice lists it, ready or not: whether it takes work its sidecar says
itself, sooner and more exactly than the kubelet. One that is terminating is listed as leaving.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.api.v1alpha1.labels import (
    POOL_LABEL,
    SIDECAR_GRPC_PORT,
    SIDECAR_GRPC_PORT_NAME,
    executor_tls_name,
)
from superinfer_ingress.config import ExecutorSettings

SERVICE_LABEL: Final = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One pod behind a Service.

    Attributes:
        name: the pod's.
        host: its address, IPv6 in brackets.
        port: of its sidecar.
        node, zone: where it runs; "" where not known.
        ready: it passes its readiness probe.
        terminating: it is being ended.
    """

    name: str
    host: str
    port: int
    node: str
    zone: str
    ready: bool
    terminating: bool

    @property
    def standing(self) -> tuple[bool, bool, bool, str]:
        """Sorts the entry to believe last, of several for one pod: slices overlap while they are rebuilt."""
        return (not self.terminating, self.ready, "[" not in self.host, self.host)


@dataclass(frozen=True, slots=True)
class Slice:
    """One EndpointSlice: `namespace/pool` ("" where it is of no pool) and what it lists."""

    pool: str
    endpoints: tuple[Endpoint, ...]


def slice_of(document: Mapping[str, Any]) -> Slice:
    """Read an EndpointSlice; endpoints that are no pods have no name and are left out."""
    metadata = document["metadata"]
    label = (metadata.get("labels") or {}).get(POOL_LABEL, "")
    pool = f"{metadata['namespace']}/{label}" if label else ""
    port = _port_of(document.get("ports") or ())
    is_ipv6 = document.get("addressType") == "IPv6"
    endpoints = []
    for entry in document.get("endpoints") or ():
        target = entry.get("targetRef") or {}
        addresses = entry.get("addresses") or ()
        if target.get("kind") != "Pod" or not target.get("name") or not addresses:
            continue
        conditions = entry.get("conditions") or {}
        endpoints.append(
            Endpoint(
                name=target["name"],
                host=f"[{addresses[0]}]" if is_ipv6 else addresses[0],
                port=port,
                node=entry.get("nodeName") or "",
                zone=entry.get("zone") or "",
                # Absent means ready: the API says to read it so.
                ready=conditions.get("ready") is not False,
                terminating=conditions.get("terminating") is True,
            )
        )
    return Slice(pool, tuple(endpoints))


def executors_of(slices: Iterable[Slice], *, check_names: bool) -> list[ExecutorSettings]:
    """The executors of all pools, sorted by pool and name; each pod once, whatever the slices repeat."""
    found: dict[tuple[str, str], Endpoint] = {}
    for one in slices:
        if not one.pool:
            continue
        for endpoint in one.endpoints:
            key = (one.pool, endpoint.name)
            known = found.get(key)
            if known is None or known.standing < endpoint.standing:
                found[key] = endpoint
    return [
        ExecutorSettings(
            name=name,
            address=f"{endpoint.host}:{endpoint.port}",
            pool=pool,
            fault_domain=_fault_domain(endpoint),
            tls_name=_tls_name(pool) if check_names else None,
            leaving=endpoint.terminating,
        )
        for (pool, name), endpoint in sorted(found.items())
    ]


def any_ready(slices: Iterable[Slice]) -> bool:
    """Whether the cluster says that any executor is ready."""
    return any(e.ready and not e.terminating for one in slices if one.pool for e in one.endpoints)


def ready_replicas(slices: Iterable[Slice]) -> int:
    """Ready pods of a Service; at least one, since somebody is asking."""
    ready = {e.name for one in slices for e in one.endpoints if e.ready and not e.terminating}
    return max(1, len(ready))


def _tls_name(pool: str) -> str:
    """The name a pool's sidecars have certificates for; `pool` is `namespace/name`."""
    namespace, _, name = pool.partition("/")
    return executor_tls_name(name, namespace)


def _port_of(ports: Iterable[Mapping[str, Any]]) -> int:
    for port in ports:
        if port.get("name") == SIDECAR_GRPC_PORT_NAME and port.get("port"):
            return int(port["port"])
    return SIDECAR_GRPC_PORT


def _fault_domain(endpoint: Endpoint) -> tuple[str, ...]:
    named = (("zone", endpoint.zone), ("node", endpoint.node))
    return tuple(f"{level}/{name}" for level, name in named if name)
