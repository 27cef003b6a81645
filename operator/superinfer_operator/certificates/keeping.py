"""Keeps the Secrets of certificates what they should be: the authority, the ingress', one for each pool.

The authority is read from the API server itself, never remade because a watch has not told it yet, and is
created, not applied, so that of two operators that make one the second takes the first's. A Secret of the
same name without the operator's label belongs to somebody else (cert-manager, say) and is left alone; such
Secrets are not watched, so they are looked at again from time to time, and the operator makes its own once
they are gone. What fails for one Secret fails for no other. One task; a round does it before pods are made.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.pods.executor_pod import owner_reference
from superinfer_kube.errors import AlreadyExists, KubeError, NotFound
from superinfer_kube.informer import Key
from superinfer_kube.resources import SECRETS
from superinfer_operator.certificates import Authority, Terms, next_authority, next_leaf
from superinfer_operator.certificates.authority import BUNDLE_ITEM
from superinfer_operator.placing.setup import PoolSetup
from superinfer_operator.pools.refusals import Refusals
from superinfer_operator.reconciling.clock import Now
from superinfer_operator.reconciling.secrets import opaque_secret
from superinfer_operator.reconciling.writing import OnRefusal, Writer
from superinfer_operator.settings import OperatorSettings
from superinfer_operator.watching.cluster import Cluster
from superinfer_operator.watching.objects import SecretRecord, secret_record
from superinfer_operator.watching.pools import PoolRecord

_log = logging.getLogger("superinfer.operator")

_READ_AGAIN_S: Final = 3600.0
LOOK_AGAIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A Secret there should be: whose certificate it holds, and to what object and pool it belongs."""

    key: Key
    dns_name: str
    owner: Mapping[str, Any] | None = None
    pool: PoolRecord | None = None


class CertificateKeeper:
    """Issues and rotates."""

    def __init__(
        self, cluster: Cluster, writer: Writer, settings: OperatorSettings, refusals: Refusals
    ) -> None:
        self._cluster = cluster
        self._refusals = refusals
        self._writer = writer
        self._settings = settings
        self._terms = Terms()
        self._foreign: dict[Key, float] = {}
        """Secrets of somebody else, and when each was looked at."""
        self._good: dict[Key, tuple[SecretRecord, bytes, float]] = {}

    @property
    def next_at(self) -> float | None:
        """When to look again at what belongs to somebody else; None where nothing does."""
        return min(self._foreign.values()) + LOOK_AGAIN_S if self._foreign else None

    async def keep(self, setups: Iterable[PoolSetup], now: Now) -> None:
        """Write every certificate that is missing or due; what fails is among the writer's failures."""
        if not (self._settings.manage_certificates and self._settings.pods.tls):
            return
        wanted = [_Wanted(Key(self._cluster.namespace, labels.INGRESS_TLS_SECRET), labels.INGRESS_TLS_NAME)]
        wanted += [one for setup in setups if (one := _of_pool(setup)) is not None]
        self._forget_others({one.key for one in wanted})
        try:
            authority = await self._authority(now)
        except KubeError as error:
            self._writer.failures.append(error)
            return
        if authority is None:
            self._foreign.clear()  # without one nothing is looked at, and no time makes that due
            return
        async with asyncio.TaskGroup() as group:
            for one in wanted:
                group.create_task(self._keep_alone(one, authority, now))

    def _forget_others(self, wanted: set[Key]) -> None:
        """Pools come and go; what is known of their Secrets must not outlive them."""
        self._foreign = {key: at for key, at in self._foreign.items() if key in wanted}
        self._good = {key: good for key, good in self._good.items() if key in wanted}

    async def _authority(self, now: Now) -> Authority | None:
        key = Key(self._cluster.namespace, labels.CA_SECRET)
        known = self._cluster.secrets.objects.get(key) or await self._read(key)
        held = dict(known.items) if known is not None else None
        authority = next_authority(held, now.instant, self._terms, trusted=self._trusted())
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

    def _trusted(self) -> bytes:
        """Whom the ingress trusts, should the authority's own Secret be lost."""
        known = self._cluster.secrets.objects.get(Key(self._cluster.namespace, labels.INGRESS_TLS_SECRET))
        return known.items.get(BUNDLE_ITEM, b"") if known is not None else b""

    async def _keep_alone(self, wanted: _Wanted, authority: Authority, now: Now) -> None:
        try:
            await self._keep(wanted, authority, now)
        except KubeError as error:
            self._writer.failures.append(error)

    async def _keep(self, wanted: _Wanted, authority: Authority, now: Now) -> None:
        key = wanted.key
        known = self._cluster.secrets.objects.get(key)
        if known is not None:
            self._foreign.pop(key, None)
            if self._was_good(key, known, authority, now):
                self._settle(wanted)
                return
        elif (at := self._foreign.get(key)) is not None:
            if now.seconds - at < LOOK_AGAIN_S:
                return
            known = await self._read(key)
        if self._held_off(wanted, now):
            return
        if known is None:
            items = next_leaf(None, authority, wanted.dns_name, now.instant, self._terms)
            document = opaque_secret(key, items, wanted.owner)
            created = await self._writer.create(SECRETS, document, self._refused(wanted, now))
            known = await self._read(key) if created is False else None
        if known is None:
            self._foreign.pop(key, None)
            return
        if not known.managed:
            self._foreign[key] = now.seconds
            return
        self._foreign.pop(key, None)
        uid = str(wanted.owner["uid"]) if wanted.owner is not None else ""
        held = dict(known.items)
        items = next_leaf(held, authority, wanted.dns_name, now.instant, self._terms)
        if items != held or known.owner != uid:
            document = opaque_secret(key, items, wanted.owner)
            await self._writer.apply(SECRETS, document, self._refused(wanted, now))
        else:
            self._good[key] = (known, authority.bundle, now.seconds)
            self._settle(wanted)

    def _held_off(self, wanted: _Wanted, now: Now) -> bool:
        return wanted.pool is not None and self._refusals.holds(wanted.pool, SECRETS.plural, now.seconds)

    def _settle(self, wanted: _Wanted) -> None:
        if wanted.pool is not None:
            self._refusals.settle(wanted.pool, SECRETS.plural)

    def _refused(self, wanted: _Wanted, now: Now) -> OnRefusal | None:
        """What to do where a pool's Secret is not taken; the release's own is a failure of the round."""
        pool = wanted.pool
        if pool is None:
            return None
        return lambda error: self._refusals.note(pool, SECRETS.plural, error, now.seconds)

    def _was_good(self, key: Key, known: SecretRecord, authority: Authority, now: Now) -> bool:
        """Reading a certificate takes a millisecond; hundreds are not read in every round."""
        record, bundle, at = self._good.get(key, (None, b"", 0.0))
        return record is known and bundle == authority.bundle and now.seconds - at < _READ_AGAIN_S

    async def _read(self, key: Key) -> SecretRecord | None:
        try:
            return secret_record(await self._writer.api.get(SECRETS, key.name, key.namespace))
        except NotFound:
            return None


def _of_pool(setup: PoolSetup) -> _Wanted | None:
    """The Secret of a pool's executors; none while it is going, or is not accepted."""
    record = setup.record
    if record.deleting or record.pool is None or setup.demand is None:
        return None
    key = Key(record.namespace, labels.executor_tls_secret_name(record.name))
    name = labels.executor_tls_name(record.name, record.namespace)
    return _Wanted(key, name, owner_reference(record.pool), record)
