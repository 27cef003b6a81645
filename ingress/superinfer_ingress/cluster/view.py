"""What the API server knows and this ingress serves by: contracts, pools, executors, keys, replicas.

Promises: nothing is in effect before everything has been listed once; afterwards every change is in effect
within moments of its event, and while the API server is away the last state stays in effect. One watch that
fails never touches the others.
Concurrency: one task per watch, and one that puts contracts into effect.
"""

import asyncio
import base64
import binascii
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from superinfer_core.api.v1alpha1.labels import API_KEYS_ITEM, INGRESS_FIELD_MANAGER, POOL_LABEL
from superinfer_core.contract.conflicts import PoolFacts
from superinfer_ingress.cluster.contracts import ClusterContracts, filed_of
from superinfer_ingress.cluster.endpoints import (
    SERVICE_LABEL,
    Slice,
    any_ready,
    executors_of,
    ready_replicas,
    slice_of,
)
from superinfer_ingress.cluster.pools import pool_of
from superinfer_ingress.config import Config, KubernetesSettings
from superinfer_ingress.contracts.keys import KeyRing, KeysInvalid, read_keys
from superinfer_ingress.surroundings import Followers
from superinfer_kube.client import KubeClient
from superinfer_kube.informer import Change, ChangeKind, Informer, Key
from superinfer_kube.resources import CHIPLET_POOLS, ENDPOINT_SLICES, SECRETS, SLO_CONTRACTS

T = TypeVar("T")

_log = logging.getLogger("superinfer.ingress.cluster")

_SETTLE_S: Final = 0.05
"""Changes of contracts come in crowds; they are resolved together."""
_AFTER_BUG_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class WatchState:
    """How one watch stands.

    Attributes:
        name: what it watches.
        synced: everything was listed once.
        silent_s: since the API server last said something about it.
        trouble: why nothing is heard; "" while the watch stands.
        objects: how many are known.
        relists: how often everything was listed.
    """

    name: str
    synced: bool
    silent_s: float
    trouble: str
    objects: int
    relists: int


class ClusterView:
    """The cluster, as far as this ingress is concerned."""

    def __init__(self, config: Config, settings: KubernetesSettings) -> None:
        self.client = KubeClient.connect(field_manager=INGRESS_FIELD_MANAGER, kubeconfig=settings.kubeconfig)
        self.namespace = settings.namespace or os.environ.get("POD_NAMESPACE") or self.client.namespace
        self._check_names = config.tls is not None
        client = self.client
        self._contracts = Informer(client, SLO_CONTRACTS, filed_of)
        self._pools = Informer(client, CHIPLET_POOLS, pool_of)
        self._executors = Informer(client, ENDPOINT_SLICES, slice_of, labels=POOL_LABEL)
        self._replicas = Informer(
            client,
            ENDPOINT_SLICES,
            slice_of,
            namespace=self.namespace,
            labels=f"{SERVICE_LABEL}={settings.service}",
        )
        self._keys = Informer(
            client,
            SECRETS,
            partial(key_ring_of, home=self.namespace),
            namespace=self.namespace,
            fields=f"metadata.name={settings.keys_secret}",
        )
        self.source = ClusterContracts(client, self._contracts, writes=settings.write_contracts)
        self.in_effect = asyncio.Event()
        """Set once everything was listed and is in effect."""
        self._dirty = asyncio.Event()

    @property
    def executors_ready(self) -> bool:
        """Whether the cluster says that any executor is ready."""
        return any_ready(self._executors.objects.values())

    def pools(self) -> Sequence[PoolFacts]:
        """Every pool there is."""
        return [pool.facts for pool in self._pools.objects.values()]

    def default_contract(self, pool: str) -> str | None:
        """Object key `namespace/name` of the default contract of a pool, which is named likewise."""
        namespace, _, name = pool.partition("/")
        known = self._pools.objects.get(Key(namespace, name))
        return None if known is None else known.default_contract

    def states(self) -> Sequence[WatchState]:
        """How every watch stands."""
        now_s = monotonic()
        return [
            WatchState(
                name,
                informer.synced.is_set(),
                max(0.0, now_s - informer.heard_s),
                "" if informer.trouble is None else informer.trouble.why,
                len(informer.objects),
                informer.relists,
            )
            for name, informer in self._informers().items()
        ]

    async def follow(self, followers: Followers) -> None:
        """Tell the followers what there is and what changes, for as long as the task lives."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._each(self._contracts, self._on_contract))
                tasks.create_task(self._each(self._pools, lambda _: self._dirty.set()))
                tasks.create_task(self._each(self._executors, lambda _: self._on_executors(followers)))
                tasks.create_task(self._each(self._replicas, lambda _: self._on_replicas(followers)))
                tasks.create_task(self._each(self._keys, lambda change: _on_keys(change, followers)))
                tasks.create_task(self._put_into_effect(followers))
        finally:
            await self.client.close()

    def _informers(self) -> Mapping[str, Informer[Any]]:
        return {
            "slocontracts": self._contracts,
            "chipletpools": self._pools,
            "executors": self._executors,
            "replicas": self._replicas,
            "keys": self._keys,
        }

    async def _each(self, informer: Informer[T], on_change: Callable[[Change[T]], None]) -> None:
        while True:
            try:
                async for change in informer.changes():
                    # The operator writes status all the time; only what is served by counts here.
                    if change.matters:
                        on_change(change)
            except Exception:  # noqa: BLE001 - a bug in one watch must not end the others
                _log.exception("following %s failed; going on", informer.resource.plural)
            await asyncio.sleep(_AFTER_BUG_S)

    def _on_contract(self, change: Change[Any]) -> None:
        if change.kind is ChangeKind.DELETED:
            self.source.forget(change.key)
        self._dirty.set()

    def _on_executors(self, followers: Followers) -> None:
        if self._executors.synced.is_set():
            slices: Iterable[Slice] = self._executors.objects.values()
            followers.executors(executors_of(slices, check_names=self._check_names))

    def _on_replicas(self, followers: Followers) -> None:
        if self._replicas.synced.is_set():
            followers.replicas(ready_replicas(self._replicas.objects.values()))

    async def _put_into_effect(self, followers: Followers) -> None:
        for informer in self._informers().values():
            await informer.synced.wait()
        self._dirty.set()
        while True:
            await self._dirty.wait()
            await asyncio.sleep(_SETTLE_S)
            self._dirty.clear()
            try:
                await followers.contracts()
            except Exception:  # noqa: BLE001 - the next change may be a good one
                _log.exception("contracts could not be put into effect; the former ones stay")
                continue
            self.in_effect.set()


def key_ring_of(document: Mapping[str, Any], *, home: str) -> KeyRing:
    """The keys of the one Secret; none where it has no such item.

    Args:
        document: the Secret.
        home: the namespace of the installation, whose administrators' keys are good for every namespace.

    Raises:
        ValueError: they cannot be read; the message never holds any of them.
    """
    encoded = (document.get("data") or {}).get(API_KEYS_ITEM, "")
    try:
        text = base64.b64decode(encoded, validate=True).decode("utf-8")
        return read_keys(text, f"Secret {document['metadata']['name']}", home=home)
    except (KeysInvalid, binascii.Error, UnicodeDecodeError) as error:
        what = str(error) if isinstance(error, KeysInvalid) else type(error).__name__
        raise ValueError(what) from None


def _on_keys(change: Change[KeyRing], followers: Followers) -> None:
    if change.kind is ChangeKind.DELETED:
        followers.keys(KeyRing())
    elif change.object is not None:
        followers.keys(change.object)
