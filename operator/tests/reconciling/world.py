"""A cluster in memory for whole rounds: what is written shows up as watches would tell it.

It is not an API server: nothing is validated, defaulted or merged beyond the top level. What depends on that
is tested against a real one.
"""

import copy
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from superinfer_core.pods.settings import PodSettings
from superinfer_kube.errors import AlreadyExists, Conflict, NotFound, Unavailable
from superinfer_kube.informer import ChangeKind, Key
from superinfer_kube.resources import CHIPLET_POOLS, CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS, SLO_CONTRACTS
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.reconciler import Reconciler
from superinfer_operator.settings import OperatorSettings
from superinfer_operator.watching.cluster import CONFIG_LABEL, Cluster

SETTINGS = OperatorSettings(
    namespace="system",
    pods=PodSettings(tls=False, engine_image="vllm:1"),
    manage_certificates=False,
)


class World:
    """Objects, their watches, and a clock that stands still until it is moved."""

    def __init__(self, settings: OperatorSettings = SETTINGS) -> None:
        self.settings = settings
        self.instant = datetime(2026, 1, 1, tzinfo=UTC)
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.away = False
        self._numbers = itertools.count(1)
        self.start()

    def start(self) -> None:
        """A new operator that knows nothing but what is in the cluster."""
        self.cluster = Cluster(
            None,
            namespace="system",
            changed=lambda urgency: None,
            secret_namespaces=self.settings.secret_namespaces,
        )
        self.reconciler = Reconciler(self.cluster, self, self.settings, lambda: Now(self.instant))
        for (plural, _, _), document in sorted(self.objects.items()):
            self._tell(plural, document)

    async def round(self, times: int = 1) -> None:
        for _ in range(times):
            await self.reconciler.round()

    async def settle(self) -> None:
        """Rounds until nothing is written any more; fails where that never happens."""
        for _ in range(20):
            before = len(self.calls)
            await self.reconciler.round()
            if len(self.calls) == before:
                return
        raise AssertionError(f"never settled; the last calls: {self.calls[-5:]}")

    def pass_time(self, seconds: float) -> None:
        self.instant += timedelta(seconds=seconds)

    # What a person, a kubelet or a scheduler does.

    def put(self, resource, document) -> dict[str, Any]:
        metadata = document["metadata"]
        key = (resource.plural, metadata.get("namespace") or "", metadata["name"])
        before = self.objects.get(key, {"metadata": {}})
        stored = copy.deepcopy({**before, **document})
        stored["metadata"] = {**before["metadata"], **copy.deepcopy(metadata)}
        stored["metadata"].setdefault("uid", f"uid-{next(self._numbers)}")
        stored["metadata"].setdefault("generation", 1)
        stored["metadata"].setdefault("creationTimestamp", self.instant.isoformat())
        stored["metadata"]["resourceVersion"] = str(next(self._numbers))
        self.objects[key] = stored
        self._tell(resource.plural, stored)
        return stored

    def pool(self, name="p", namespace="shop", **spec):
        made = {
            "model": {"name": "m"},
            "engine": {"type": "Stub"},
            "chiplet": {"shape": "CPU"},
            "replicas": 2,
        }
        metadata = {"name": name, "namespace": namespace}
        before = self.objects.get(("chipletpools", namespace, name))
        if before is not None:
            metadata["generation"] = before["metadata"]["generation"] + 1
            made = before["spec"]
        return self.put(CHIPLET_POOLS, {"metadata": metadata, "spec": {**made, **spec}})

    def contract(self, name, namespace="shop", **spec):
        return self.put(SLO_CONTRACTS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})

    def node(self, name, *, ready=True, spec=None, **allocatable):
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"} | allocatable
        condition = {
            "type": "Ready",
            "status": "True" if ready else "Unknown",
            "lastTransitionTime": self.instant.isoformat(),
        }
        status = {"allocatable": amounts, "conditions": [condition]}
        labels = {"kubernetes.io/hostname": name}
        return self.put(
            NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec or {}, "status": status}
        )

    def config_map(self, name, items, namespace="shop"):
        return self.put(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}, "data": items})

    def run_pods(self) -> None:
        """Every pod that was made becomes ready; those that are deleted go."""
        for pod in self.pods():
            metadata = pod["metadata"]
            if metadata.get("deletionTimestamp"):
                self.drop(PODS, metadata["namespace"], metadata["name"])
            elif not pod.get("status"):
                ready = [{"type": "Ready", "status": "True"}]
                self.set_pod(metadata["name"], metadata["namespace"], phase="Running", conditions=ready)

    def run_gone(self) -> None:
        """Pods that are being deleted go."""
        for pod in self.pods():
            if pod["metadata"].get("deletionTimestamp"):
                self.drop(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])

    def set_pod(self, name, namespace="shop", **status):
        pod = self.objects["pods", namespace, name]
        self.put(
            PODS, {"metadata": {"name": name, "namespace": namespace}, "spec": pod["spec"], "status": status}
        )

    def delete_pool(self, name="p", namespace="shop"):
        stored = self.objects["chipletpools", namespace, name]
        if not stored["metadata"].get("finalizers"):
            self.drop(CHIPLET_POOLS, namespace, name)
            return
        metadata = {"name": name, "namespace": namespace, "deletionTimestamp": self.instant.isoformat()}
        self.put(CHIPLET_POOLS, {"metadata": metadata})

    def drop(self, resource, namespace, name) -> None:
        stored = self.objects.pop((resource.plural, namespace, name))
        self._tell(resource.plural, stored, gone=True)

    # What is looked at.

    def pods(self) -> list[dict[str, Any]]:
        return [document for (plural, _, _), document in sorted(self.objects.items()) if plural == "pods"]

    def names(self) -> list[str]:
        """Executors that are not going."""
        return [p["metadata"]["name"] for p in self.pods() if not p["metadata"].get("deletionTimestamp")]

    def conditions(self, plural, name, namespace="shop") -> dict[str, tuple[str, str]]:
        status = self.objects[plural, namespace, name].get("status") or {}
        return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", ())}

    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.events]

    # The API.

    async def get(self, resource, name, namespace=None):
        self._reach()
        stored = self.objects.get((resource.plural, namespace or "", name))
        if stored is None:
            raise NotFound("not there")
        return copy.deepcopy(stored)

    async def create(self, resource, document):
        self._reach()
        metadata = document["metadata"]
        if resource is EVENTS:
            self.events.append(copy.deepcopy(dict(document)))
            return document
        self.calls.append(f"create {resource.plural} {metadata['name']}")
        if (resource.plural, metadata.get("namespace") or "", metadata["name"]) in self.objects:
            raise AlreadyExists("there already")
        return self.put(resource, document)

    async def apply(self, resource, document, *, subresource=None):
        self._reach()
        metadata = document["metadata"]
        self.calls.append(
            f"apply {resource.plural}{'/' + subresource if subresource else ''} {metadata['name']}"
        )
        key = (resource.plural, metadata.get("namespace") or "", metadata["name"])
        stored = self.objects.get(key)
        if "uid" in metadata and (stored is None or stored["metadata"]["uid"] != metadata["uid"]):
            raise Conflict("another object by that name")
        if subresource == "status":
            return self.put(resource, {"metadata": {**stored["metadata"]}, "status": document["status"]})
        if resource is CHIPLET_POOLS and "finalizers" not in metadata:
            stored["metadata"]["finalizers"] = []
            if stored["metadata"].get("deletionTimestamp"):
                self.drop(resource, *key[1:])
                return stored
        return self.put(resource, document)

    async def delete(self, resource, name, namespace=None, *, grace_s=None, uid=None):
        self._reach()
        self.calls.append(f"delete {resource.plural} {name}")
        stored = self.objects.get((resource.plural, namespace or "", name))
        if stored is None:
            raise NotFound("not there")
        if uid is not None and stored["metadata"]["uid"] != uid:
            raise Conflict("another object by that name")
        if grace_s == 0:
            self.drop(resource, namespace, name)
            return
        metadata = {"name": name, "namespace": namespace, "deletionTimestamp": self.instant.isoformat()}
        self.put(resource, {"metadata": metadata})

    def _reach(self) -> None:
        if self.away:
            raise Unavailable("connection refused")

    def _tell(self, plural, document, *, gone=False) -> None:
        for informer in self.cluster.informers:
            if informer.resource.plural != plural or not self._selected(informer, document):
                continue
            metadata = document["metadata"]
            key = Key(metadata.get("namespace") or "", metadata["name"])
            kind = ChangeKind.DELETED if gone else ChangeKind.MODIFIED
            for change in informer._take(kind, key, copy.deepcopy(document)):
                if informer is self.cluster.pods:
                    self.cluster._take_executor(change)
                    self.cluster._take_foreign(change)

    def _selected(self, informer, document) -> bool:
        labels = document["metadata"].get("labels") or {}
        if informer is self.cluster.texts:
            return labels.get(CONFIG_LABEL) == "true"
        if informer._namespace not in (None, document["metadata"].get("namespace")):
            return False
        if informer in self.cluster.keys.informers:
            return labels.get("superinfer.dev/api-keys") == "true"
        if informer is self.cluster.attainment:
            return labels.get("app.kubernetes.io/component") == "ingress"
        ours = (*self.cluster.secrets.informers, self.cluster.services, self.cluster.budgets)
        if informer in ours:
            return labels.get("app.kubernetes.io/managed-by") == "superinfer-operator"
        return True


__all__ = ["PODS", "SECRETS", "SETTINGS", "World"]
