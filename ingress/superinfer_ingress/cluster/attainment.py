"""This replica's window counts as a ConfigMap of its own, for the operator to add up.

Promises: written only where something changed, and not oftener than every so many seconds; it belongs to the
pod and goes with it. Contracts nobody asked for are left out, and so is what would not fit: the busiest stay.
Concurrency: one task.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from superinfer_core.api.v1alpha1.labels import (
    APP_COMPONENT_LABEL,
    APP_NAME,
    APP_NAME_LABEL,
    ATTAINMENT_CONFIG_MAP_PREFIX,
    COMPONENT_INGRESS,
)
from superinfer_core.contract.shared_counts import counts_document
from superinfer_ingress.contracts.accounts import Accounts
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import KubeError
from superinfer_kube.resources import CONFIG_MAPS

_log = logging.getLogger("superinfer.ingress.cluster")

Counts = dict[str, dict[str, Any]]

COUNTS_ITEM: Final = "counts.json"
_MOST_BYTES: Final = 900_000
"""An object may have 1 MiB."""
_PER_TURN: Final = 64


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Which pod this process is in."""

    name: str
    namespace: str
    uid: str

    @classmethod
    def of_environment(cls, namespace: str) -> "PodIdentity | None":
        """As the downward API says in POD_NAME and POD_UID; None where it does not."""
        name, uid = os.environ.get("POD_NAME"), os.environ.get("POD_UID")
        if not name or not uid:
            _log.info("POD_NAME and POD_UID are not set: window counts are not published")
            return None
        return cls(name, namespace, uid)


class AttainmentPublisher:
    """Publishes the counts of one replica."""

    def __init__(
        self,
        client: KubeClient,
        pod: PodIdentity,
        accounts: Accounts,
        *,
        clock_ms: Callable[[], float],
        every_s: float,
    ) -> None:
        self._client = client
        self._pod = pod
        self._accounts = accounts
        self._clock_ms = clock_ms
        self._every_s = every_s
        self._published: Counts = {}

    async def publish_for_ever(self) -> None:
        """Publish what changed, until cancelled; an API server that is away costs a turn."""
        said = ""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.publish()
                said = ""
            except KubeError as error:
                if said != type(error).__name__:
                    said = type(error).__name__
                    _log.warning("window counts could not be published: %s", error)

    async def publish(self) -> bool:
        """Publish now if anything changed; whether it did."""
        counts = await self._counts()
        if _without_age(counts) == self._published:
            return False
        text = msgspec.json.encode({"contracts": counts}).decode()
        name = f"{ATTAINMENT_CONFIG_MAP_PREFIX}{self._pod.name}"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": self._pod.name, "uid": self._pod.uid}
        labels = {APP_NAME_LABEL: APP_NAME, APP_COMPONENT_LABEL: COMPONENT_INGRESS}
        metadata = {
            "name": name,
            "namespace": self._pod.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        }
        await self._client.apply(CONFIG_MAPS, {"metadata": metadata, "data": {COUNTS_ITEM: text}})
        self._published = _without_age(counts)
        return True

    async def _counts(self) -> Counts:
        now_ms = self._clock_ms()
        found: list[tuple[int, str, dict[str, Any]]] = []
        for number, account in enumerate(tuple(self._accounts)):
            if number % _PER_TURN == _PER_TURN - 1:
                await asyncio.sleep(0)
            counts = account.window.counts(now_ms)
            if any((counts.offered, counts.degraded, counts.cancelled, counts.excluded)):
                covered = account.window.covered(now_ms)
                document = counts_document(account.contract, counts, covered=covered)
                found.append((counts.offered, account.contract.key, document))
        found.sort(key=lambda entry: (-entry[0], entry[1]))
        kept, size = [], 0
        for _, key, document in found:
            size += len(msgspec.json.encode(document)) + len(key) + 8
            if size > _MOST_BYTES:
                break
            kept.append((key, document))
        if len(kept) < len(found):
            _log.warning("counts of %d contracts do not fit and are left out", len(found) - len(kept))
        return dict(sorted(kept))


def _without_age(counts: Counts) -> Counts:
    """A window that only gets older is no reason to write."""
    return {key: {**document, "covered": 0} for key, document in counts.items()}
