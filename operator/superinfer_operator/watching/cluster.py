"""The operator's picture of the cluster: one watch per kind, and what it wrote itself a moment ago.

kopf's own watches are not used for it: after a watch was away for too long kopf lists again and tells nothing
of objects that are gone by then, so a cache fed by its handlers would keep pods and nodes that no longer
exist. The informers here tell such deletions.

Promise: after `synced()` the picture is complete; every change that matters calls `changed`. What was created
here is in the picture at once (`note_pod`), although its watch has yet to tell it, so that nothing is ever
created twice. Concurrency: everything runs on one event loop; readers take what they need without awaiting.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.placement import ExecutorPhase, Node
from superinfer_kube.client import KubeClient
from superinfer_kube.informer import Change, ChangeKind, Informer, Key
from superinfer_kube.resources import (
    CHIPLET_POOLS,
    CONFIG_MAPS,
    NODE_TOPOLOGIES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
    SLO_CONTRACTS,
)
from superinfer_operator.contracts.attainment import CountsRecord, counts_record
from superinfer_operator.watching.collection import NamespacedCollection
from superinfer_operator.watching.contracts import ContractRecord, contract_record
from superinfer_operator.watching.hardware import NodeHardware, hardware_reader
from superinfer_operator.watching.nodes import node_facts
from superinfer_operator.watching.objects import (
    KeysRecord,
    MadeObject,
    SecretRecord,
    TextRecord,
    keys_record,
    made_object,
    secret_record,
    text_record,
)
from superinfer_operator.watching.pods import ExecutorPod, ForeignPod, PodFacts, pod_facts
from superinfer_operator.watching.pools import PoolRecord, pool_record

CONFIG_LABEL: Final = f"{labels.OPERATOR_ANNOTATION_PREFIX}/config"
"""The operator puts it on ConfigMaps that pools refer to, so that it needs to watch only those."""

_OF_INGRESSES: Final = (
    f"{labels.APP_NAME_LABEL}={labels.APP_NAME},{labels.APP_COMPONENT_LABEL}={labels.COMPONENT_INGRESS}"
)
_OURS: Final = f"{labels.APP_MANAGED_BY_LABEL}={labels.MANAGED_BY_OPERATOR}"
_UNCONFIRMED_S: Final = 60.0


class Urgency(StrEnum):
    """How soon a change has to be looked at."""

    NOW = "Now"
    SOON = "Soon"
    """What others do on our nodes: often, and seldom of consequence."""


class Cluster:
    """Everything that is watched."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        changed: Callable[[Urgency], None],
        secret_namespaces: Collection[str] | None = None,
    ) -> None:
        """Prepare the watches.

        Args:
            client: of the cluster.
            namespace: where the release lives.
            changed: called for whatever may need a reconcile.
            secret_namespaces: where Secrets may be read, `namespace` among them; None everywhere.
        """
        self.namespace = namespace
        self._changed = changed
        self.pools: Informer[PoolRecord] = Informer(client, CHIPLET_POOLS, pool_record)
        self.contracts: Informer[ContractRecord] = Informer(client, SLO_CONTRACTS, contract_record)
        self.nodes: Informer[Node] = Informer(client, NODES, node_facts)
        self.hardware: Informer[NodeHardware] = Informer(client, NODE_TOPOLOGIES, hardware_reader())
        self.pods: Informer[PodFacts] = Informer(client, PODS, pod_facts)
        self.services: Informer[MadeObject] = Informer(client, SERVICES, made_object, labels=_OURS)
        self.budgets: Informer[MadeObject] = Informer(
            client, POD_DISRUPTION_BUDGETS, made_object, labels=_OURS
        )
        self.secrets: NamespacedCollection[SecretRecord] = NamespacedCollection(
            client, SECRETS, secret_record, namespaces=secret_namespaces, labels=_OURS
        )
        self.keys: NamespacedCollection[KeysRecord] = NamespacedCollection(
            client,
            SECRETS,
            keys_record,
            namespaces=secret_namespaces,
            labels=f"{labels.API_KEYS_LABEL}=true",
        )
        self.texts: Informer[TextRecord] = Informer(
            client, CONFIG_MAPS, text_record, labels=f"{CONFIG_LABEL}=true"
        )
        self.attainment: Informer[CountsRecord] = Informer(
            client, CONFIG_MAPS, counts_record, namespace=namespace, labels=_OF_INGRESSES
        )
        self._unconfirmed: dict[Key, tuple[ExecutorPod, float]] = {}
        self._been_ready: set[str] = set()
        self._executors: dict[Key, ExecutorPod] = {}
        self._of_pool: dict[str, dict[Key, ExecutorPod]] = {}
        self._held: dict[tuple[str, str], int] = {}

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All of them."""
        return (
            self.pools,
            self.contracts,
            self.nodes,
            self.hardware,
            self.pods,
            self.services,
            self.budgets,
            *self.secrets.informers,
            *self.keys.informers,
            self.texts,
            self.attainment,
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                follow = self._follow_pods if informer is self.pods else self._follow
                group.create_task(follow(informer), name=f"watch-{informer.resource.plural}")

    async def synced(self) -> None:
        """Wait until everything that exists is known."""
        for informer in self.informers:
            await informer.synced.wait()

    @property
    def is_synced(self) -> bool:
        """Whether everything that exists is known."""
        return all(informer.synced.is_set() for informer in self.informers)

    def executors(self, now: float) -> list[ExecutorPod]:
        """Every executor pod, with those only just created; sorted."""
        for key, (_, since) in list(self._unconfirmed.items()):
            if now - since > _UNCONFIRMED_S:
                # Created and gone again before any watch saw it.
                del self._unconfirmed[key]
        found = {key: pod for key, (pod, _) in self._unconfirmed.items()} | self._executors
        return [found[key] for key in sorted(found)]

    def executors_of(self, pool: str) -> list[ExecutorPod]:
        """The executor pods of one pool, with those only just created; sorted."""
        found = {key: pod for key, (pod, _) in self._unconfirmed.items() if pod.pool == pool}
        found |= self._of_pool.get(pool, {})
        return [found[key] for key in sorted(found)]

    def held_by_others(self) -> Mapping[tuple[str, str], int]:
        """What pods that are not ours hold, by (node, resource)."""
        return self._held

    def note_pod(self, document: Mapping[str, Any], now: float) -> None:
        """A pod that was created just now."""
        pod = pod_facts(document)
        key = Key(document["metadata"]["namespace"], document["metadata"]["name"])
        if isinstance(pod, ExecutorPod) and key not in self._executors:
            self._unconfirmed[key] = (pod, now)

    def note_deleting(self, pod: ExecutorPod) -> None:
        """A pod whose deletion was asked for just now."""
        key = Key(pod.namespace, pod.name)
        known = self._executors.get(key)
        if known is not None and known.uid == pod.uid:
            self._set_executor(key, replace(known, terminating=True))

    async def _follow(self, informer: Informer[Any]) -> None:
        async for change in informer.changes():
            # Heartbeats and the operator's own writes come back as changes that change nothing.
            if change.matters and informer.synced.is_set():
                self._changed(Urgency.NOW)

    async def _follow_pods(self, informer: Informer[PodFacts]) -> None:
        async for change in informer.changes():
            if change.kind is ChangeKind.SYNCED:
                self._changed(Urgency.NOW)
                continue
            ours = self._take_executor(change)
            others = self._take_foreign(change)
            if informer.synced.is_set() and (ours or others):
                self._changed(Urgency.NOW if ours else Urgency.SOON)

    def _take_executor(self, change: Change[PodFacts]) -> bool:
        known = self._executors.get(change.key)
        pod = change.object if change.kind is not ChangeKind.DELETED else None
        if not isinstance(pod, ExecutorPod):
            if known is None:
                return False
            del self._executors[change.key]
            del self._of_pool[known.pool][change.key]
            self._been_ready.discard(known.uid)
            return True
        self._unconfirmed.pop(change.key, None)
        if pod.phase is ExecutorPhase.READY:
            self._been_ready.add(pod.uid)
        elif pod.phase is ExecutorPhase.PENDING and pod.uid in self._been_ready:
            pod = replace(pod, phase=ExecutorPhase.NOT_READY)
        self._set_executor(change.key, pod)
        return pod != known

    def _set_executor(self, key: Key, pod: ExecutorPod) -> None:
        known = self._executors.get(key)
        if known is not None and known.pool != pod.pool:
            del self._of_pool[known.pool][key]
        self._executors[key] = pod
        self._of_pool.setdefault(pod.pool, {})[key] = pod

    def _take_foreign(self, change: Change[PodFacts]) -> bool:
        before = _holding(change.former)
        after = _holding(change.object if change.kind is not ChangeKind.DELETED else None)
        if before == after:
            return False
        self._count(before, -1)
        self._count(after, 1)
        return True

    def _count(self, pod: ForeignPod | None, sign: int) -> None:
        if pod is None:
            return
        for resource, amount in (*pod.requests, ("pods", 1)):
            held = self._held.get((pod.node, resource), 0) + sign * amount
            if held:
                self._held[pod.node, resource] = held
            else:
                self._held.pop((pod.node, resource), None)


def _holding(pod: PodFacts | None) -> ForeignPod | None:
    """Somebody else's pod that has a node, and so holds something of it."""
    return pod if isinstance(pod, ForeignPod) and pod.node else None


def silent_for(informers: Iterable[Informer[Any]], now: float) -> float:
    """How long the quietest watch has heard nothing, on the monotonic clock."""
    return max((now - informer.heard_s for informer in informers), default=0.0)
