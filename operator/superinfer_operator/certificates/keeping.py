"""Keeps the Secrets of certificates what they should be: the authority, the ingress', one for each pool.

The authority is read from the API server itself, never remade because a watch has not told it yet, and is
created, not applied, so that of two operators that make one the second takes the first's. A Secret of the
same name without the operator's label belongs to somebody else (cert-manager, say) and is left alone. One
task; a round does it before pods are made.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.pods.executor_pod import owner_reference
from superinfer_kube.errors import AlreadyExists, KubeError, NotFound
from superinfer_kube.informer import Key
from superinfer_kube.resources import SECRETS
from superinfer_operator.certificates import (
    INGRESS_NAME,
    Authority,
    Terms,
    next_authority,
    next_leaf,
)
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.secrets import opaque_secret
from superinfer_operator.reconciling.writing import Writer
from superinfer_operator.settings import OperatorSettings
from superinfer_operator.watching.cluster import Cluster
from superinfer_operator.watching.objects import SecretRecord, secret_record

_log = logging.getLogger("superinfer.operator")

_READ_AGAIN_S: Final = 3600.0


class CertificateKeeper:
    """Issues and rotates."""

    def __init__(self, cluster: Cluster, writer: Writer, settings: OperatorSettings) -> None:
        self._cluster = cluster
        self._writer = writer
        self._settings = settings
        self._terms = Terms()
        self._foreign: set[Key] = set()
        self._good: dict[Key, tuple[SecretRecord, bytes, float]] = {}

    async def keep(self, setups: Iterable[PoolSetup], now: Now) -> None:
        """Write every certificate that is missing or due; what fails is among the writer's failures."""
        if not (self._settings.manage_certificates and self._settings.pods.tls):
            return
        try:
            await self._keep_all(setups, now)
        except* KubeError as errors:
            self._writer.failures += [error for error in errors.exceptions if isinstance(error, KubeError)]

    async def _keep_all(self, setups: Iterable[PoolSetup], now: Now) -> None:
        authority = await self._authority(now)
        if authority is None:
            return
        namespace = self._cluster.namespace
        async with asyncio.TaskGroup() as group:
            ingress = Key(namespace, labels.INGRESS_TLS_SECRET)
            group.create_task(self._keep(ingress, INGRESS_NAME, authority, None, now))
            for setup in setups:
                record = setup.record
                if record.deleting or record.pool is None or setup.demand is None:
                    continue
                key = Key(record.namespace, labels.executor_tls_secret_name(record.name))
                name = labels.executor_tls_name(record.name, record.namespace)
                owner = owner_reference(record.pool)
                group.create_task(self._keep(key, name, authority, owner, now))

    async def _authority(self, now: Now) -> Authority | None:
        key = Key(self._cluster.namespace, labels.CA_SECRET)
        known = self._cluster.secrets.objects.get(key) or await self._read(key)
        held = dict(known.items) if known is not None else None
        authority = next_authority(held, now.instant, self._terms)
        if held == authority.items:
            return authority
        if known is not None and not known.managed:
            _log.error("Secret %s is not the operator's, and no authority can be read from it", key)
            return None
        document = opaque_secret(key, authority.items, None)
        if known is not None:
            return authority if await self._writer.apply(SECRETS, document) is not None else None
        try:
            await self._writer.api.create(SECRETS, document)
        except AlreadyExists as error:
            # Somebody was quicker: the next round reads theirs.
            self._writer.failures.append(error)
            return None
        return authority

    async def _keep(
        self, key: Key, dns_name: str, authority: Authority, owner: Mapping[str, Any] | None, now: Now
    ) -> None:
        if key in self._foreign:
            return
        known = self._cluster.secrets.objects.get(key)
        if known is not None and self._was_good(key, known, authority, now):
            return
        if known is None:
            items = next_leaf(None, authority, dns_name, now.instant, self._terms)
            if await self._writer.create(SECRETS, opaque_secret(key, items, owner)) is not False:
                return
            known = await self._read(key)
            if known is None:
                return
            if not known.managed:
                self._foreign.add(key)
                return
        uid = str(owner["uid"]) if owner is not None else ""
        held = dict(known.items)
        items = next_leaf(held, authority, dns_name, now.instant, self._terms)
        if items != held or known.owner != uid:
            await self._writer.apply(SECRETS, opaque_secret(key, items, owner))
        else:
            self._good[key] = (known, authority.bundle, now.seconds)

    def _was_good(self, key: Key, known: SecretRecord, authority: Authority, now: Now) -> bool:
        """Reading a certificate takes a millisecond; hundreds are not read in every round."""
        record, bundle, at = self._good.get(key, (None, b"", 0.0))
        return record is known and bundle == authority.bundle and now.seconds - at < _READ_AGAIN_S

    async def _read(self, key: Key) -> SecretRecord | None:
        try:
            return secret_record(await self._writer.api.get(SECRETS, key.name, key.namespace))
        except NotFound:
            return None
