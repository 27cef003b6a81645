"""An ingress before a real API server, sidecars with real certificates; what the kubelet does, tests do."""

import base64
import contextlib
import hashlib
import itertools
import json
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from superinfer_core.api.v1alpha1.labels import INGRESS_TLS_NAME, executor_tls_name, executors_service_name
from superinfer_kube.testing.apiserver import ApiServer
from superinfer_kube.testing.fixtures import apiserver, superinfer_api
from superinfer_operator.certificates import Terms, next_authority, next_leaf

__all__ = ["apiserver", "superinfer_api"]

_numbers = itertools.count(1)
KEY = "sk-si-for-the-tests-of-the-cluster"


def own_address() -> str:
    """An address of this machine that EndpointSlices take: no loopback. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@dataclass
class Executor:
    """A sidecar and its engine, and how its pod's endpoint stands."""

    name: str
    port: int
    engine: Any
    sidecar: Any
    ready: bool = True
    terminating: bool = False


@dataclass
class World:
    """One user namespace, one release namespace, and what runs for them."""

    server: ApiServer
    kit: Any
    rig: Any
    folder: Path
    number: int
    address: str
    pools: dict[str, list[Executor]] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """Where pools are."""
        return f"ml{self.number}"

    @property
    def shop(self) -> str:
        """Where contracts are that use a pool of another namespace."""
        return f"shop{self.number}"

    @property
    def release(self) -> str:
        """Where the ingress is."""
        return f"release{self.number}"

    def apply(self, *documents: dict[str, Any]) -> None:
        """As kubectl does."""
        self.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        self.server.kubectl("delete", kind, name, "-n", namespace or self.namespace)

    def contract(self, name: str, *, namespace: str | None = None, **spec: Any) -> None:
        self.apply(self.kit.contract(name, namespace=namespace or self.namespace, **spec))

    def pool(self, name: str = "smollm", **spec: Any) -> None:
        self.apply(
            {
                "apiVersion": "superinfer.dev/v1alpha1",
                "kind": "ChipletPool",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "model": {"name": "stub"},
                    "engine": {"type": "Stub"},
                    "chiplet": {"shape": "CPU"},
                    **spec,
                },
            }
        )

    def executor(self, pool: str = "smollm", **engine: Any) -> Executor:
        """Start one with the certificate of its pool, and list it."""
        number = len(self.pools.setdefault(pool, []))
        name = f"{pool}-{number}-1"
        path = self.folder / f"{pool}-{number}.sock"
        running = self.rig.engine(path, **{"step_ms": 2, **engine})
        files = self.certificate(executor_tls_name(pool, self.namespace))
        beside = self.rig._start(
            f"sidecar-{name}",
            "superinfer_sidecar",
            *("--listen", "0.0.0.0:0", "--engine-socket", str(path), "--executor-name", name),
            *("--tls-cert", str(files / "tls.crt"), "--tls-key", str(files / "tls.key")),
            *("--tls-ca", str(files / "ca.crt")),
            *("--tls-pool-name", executor_tls_name(pool, self.namespace)),
        )
        executor = Executor(name, int(beside.wait_ready()["port"]), running, beside)
        self.pools[pool].append(executor)
        self.list_executors(pool)
        return executor

    def list_executors(self, pool: str = "smollm") -> None:
        """What the EndpointSlice controller does; one slice per executor, because ports differ here."""
        service = executors_service_name(pool)
        known = {executor.name for executor in self.pools[pool]}
        for executor in self.pools[pool]:
            self._slice(
                self.namespace,
                executor.name,
                {"kubernetes.io/service-name": service, "superinfer.dev/pool": pool},
                [self._endpoint(executor.name, ready=executor.ready, terminating=executor.terminating)],
                executor.port,
            )
        selector = f"kubernetes.io/service-name={service}"
        listed = self.server.kubectl(
            "get", "endpointslices", "-n", self.namespace, "-l", selector, "-o", "name"
        )
        for name in listed.split():
            if name.partition("/")[2] not in known:
                self.delete("endpointslice", name.partition("/")[2])

    def list_replicas(self, ready: int) -> None:
        """So many pods behind the ingress' own Service."""
        pods = [self._endpoint(f"ingress-{n}", ready=True, terminating=False) for n in range(ready)]
        labels = {"kubernetes.io/service-name": "superinfer-ingress"}
        self._slice(self.release, "superinfer-ingress", labels, pods, 8000)

    def keys(self, *entries: dict[str, Any]) -> None:
        """The Secret of digests that the operator writes."""
        text = yaml.safe_dump({"keys": list(entries)})
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "superinfer-api-keys", "namespace": self.release},
                "data": {"keys.yaml": base64.b64encode(text.encode()).decode()},
            }
        )

    def key(self, plain: str = KEY, **entry: Any) -> dict[str, Any]:
        digest = hashlib.sha256(plain.encode()).hexdigest()
        return {"name": "tests", "sha256": digest, "namespaces": [self.namespace], **entry}

    def certificate(self, name: str) -> Path:
        """A folder with the three items of a TLS Secret."""
        now = datetime.now(UTC)
        held = self.folder / "authority.json"
        items = None
        if held.exists():
            items = {key: value.encode() for key, value in json.loads(held.read_text()).items()}
        authority = next_authority(items, now, Terms())
        held.write_text(json.dumps({key: value.decode() for key, value in authority.items.items()}))
        folder = self.folder / "tls" / name
        folder.mkdir(parents=True, exist_ok=True)
        for item, content in next_leaf(None, authority, name, now, Terms()).items():
            (folder / item).write_bytes(content)
        return folder

    def ingress(self, *, wait: bool = True, kubernetes: dict[str, Any] | None = None, **config: Any) -> Any:
        """A replica of the ingress."""
        files = self.certificate(INGRESS_TLS_NAME)
        name = f"cluster-ingress-{next(_numbers)}"
        log = self.folder / f"{name}.jsonl"
        document = {
            "port": 0,
            "requestLog": str(log),
            "auth": "Open",
            "staleAfterMs": 2000,
            "deadAfterMs": 10_000,
            "tls": {item: str(files / file) for item, file in _TLS_FILES.items()},
            "kubernetes": {
                "namespace": self.release,
                "kubeconfig": str(self.server.kubeconfig),
                "publishAttainment": 0.2,
                **(kubernetes or {}),
            },
            **config,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        with _environment(POD_NAME=name, POD_UID=f"uid-of-{name}"):
            process = self.rig._start(name, "superinfer_ingress", "--config", str(path))
        port = int(process.wait_ready()["port"])
        ingress = self.kit.Ingress(process, f"http://127.0.0.1:{port}", port, self.folder, log)
        self.rig._to_stop.append(ingress)
        if wait:
            self.kit.until(lambda: ingress.client.get("/readyz").status_code == 200, "a ready ingress")
        return ingress

    def _slice(
        self,
        namespace: str,
        name: str,
        labels: dict[str, str],
        endpoints: list[dict[str, Any]],
        port: int,
    ) -> None:
        self.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "addressType": "IPv4",
                "ports": [{"name": "grpc", "port": port, "protocol": "TCP"}],
                "endpoints": endpoints,
            }
        )

    def _endpoint(self, pod: str, *, ready: bool, terminating: bool) -> dict[str, Any]:
        return {
            "addresses": [self.address],
            "targetRef": {"kind": "Pod", "name": pod, "namespace": self.namespace},
            "nodeName": f"node-of-{pod}",
            "zone": "zone-a",
            "conditions": {"ready": ready, "serving": ready, "terminating": terminating},
        }


_TLS_FILES = {"ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"}


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def make_world(server: ApiServer, kit: Any, rig: Any, folder: Path) -> World:
    try:
        address = own_address()
    except OSError:
        pytest.skip("this machine has no address but loopback, which EndpointSlices refuse")
    world = World(server, kit, rig, folder, next(_numbers), address)
    world.apply(
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in (world.namespace, world.shop, world.release)
        )
    )
    return world


@pytest.fixture
def world(superinfer_api: ApiServer, kit: Any, rig: Any, tmp_path: Path) -> Iterator[World]:
    """A part of the shared API server for one test; executors that end with it must not stay listed."""
    made = make_world(superinfer_api, kit, rig, tmp_path)
    yield made
    for namespace in (made.namespace, made.shop, made.release):
        kinds = "endpointslices,slocontracts,chipletpools"
        superinfer_api.kubectl("delete", kinds, "--all", "-n", namespace)


@pytest.fixture(scope="session")
def cluster_kit() -> Any:
    """This module."""
    return sys.modules[__name__]
