"""SLOContracts of the cluster as the contract store's source, and written back by server-side apply.

Promises: what was written is read from then on, before the watch brings it back; a contract that somebody
else wrote is never taken over: a field of theirs is a conflict that names them.
Concurrency: the event loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.api.v1alpha1.labels import INGRESS_FIELD_MANAGER
from superinfer_core.contract.parse import stored_from_resource
from superinfer_ingress.contracts.source import FiledContract, NotWritten, SourceProblem
from superinfer_kube.client import KubeClient
from superinfer_kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, Unavailable
from superinfer_kube.informer import Informer, Key
from superinfer_kube.resources import SLO_CONTRACTS

_KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations")
_RETRY_MS: Final = 2000.0


def filed_of(document: Mapping[str, Any]) -> FiledContract:
    """A custom resource as the store keeps it; one that is invalid is kept with its problems."""
    stored = stored_from_resource(document)
    managers = [
        entry.get("manager", "")
        for entry in document["metadata"].get("managedFields") or ()
        if not entry.get("subresource")
    ]
    owner = ""
    if managers and INGRESS_FIELD_MANAGER not in managers:
        owner = managers[0]
    kept = {"metadata": _metadata(document), "spec": document.get("spec") or {}}
    return FiledContract(stored, "", kept, owner=owner)


@dataclass(frozen=True, slots=True)
class _Written:
    """What this process changed and the watch has not told yet; without a contract it was deleted."""

    contract: FiledContract | None
    uid: str
    generation: int


class ClusterContracts:
    """The contracts of a cluster."""

    def __init__(self, client: KubeClient, informer: Informer[FiledContract], *, writes: bool) -> None:
        self._client = client
        self._informer = informer
        self._writes = writes
        self._written: dict[Key, _Written] = {}

    async def read(self) -> tuple[Sequence[FiledContract], Sequence[SourceProblem]]:
        """Every contract there is."""
        found = dict(self._informer.objects)
        for key, written in tuple(self._written.items()):
            if _is_told(written, found.get(key)):
                del self._written[key]
            elif written.contract is None:
                found.pop(key, None)
            else:
                found[key] = written.contract
        return tuple(found.values()), ()

    def forget(self, key: Key) -> None:
        """The watch said that the contract is gone."""
        self._written.pop(key, None)

    async def write(self, filed: FiledContract) -> None:
        """Apply one contract.

        Raises:
            NotWritten: the API server refused it or is away.
        """
        self._may_write()
        wanted = {"metadata": _metadata(filed.document), "spec": filed.document.get("spec") or {}}
        try:
            answer = await self._client.apply(SLO_CONTRACTS, wanted, force=False)
        except KubeError as error:
            raise _not_written(filed, error) from error
        kept = filed_of(answer)
        key = Key(kept.stored.namespace, kept.stored.name)
        self._written[key] = _Written(kept, kept.stored.uid, kept.stored.generation)

    async def delete(self, filed: FiledContract) -> None:
        """Delete one contract, and only the one that was looked at.

        Raises:
            NotWritten: the API server refused it or is away.
        """
        self._may_write()
        stored = filed.stored
        try:
            await self._client.delete(SLO_CONTRACTS, stored.name, stored.namespace, uid=stored.uid or None)
        except NotFound:
            return
        except KubeError as error:
            raise _not_written(filed, error) from error
        self._written[Key(stored.namespace, stored.name)] = _Written(None, stored.uid, stored.generation)

    def _may_write(self) -> None:
        if not self._writes:
            message = "this ingress does not write contracts (kubernetes.writeContracts); use kubectl apply"
            raise NotWritten(message, status=405)


def _is_told(written: _Written, known: FiledContract | None) -> bool:
    """Whether the watch has come to what was written, or past it."""
    if written.contract is None:
        return known is None or known.stored.uid != written.uid
    if known is None:
        return False
    return known.stored.uid != written.uid or known.stored.generation >= written.generation


def _metadata(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document.get("metadata") or {}
    return {name: metadata[name] for name in _KEPT_METADATA if metadata.get(name)}


def _not_written(filed: FiledContract, error: KubeError) -> NotWritten:
    key = filed.stored.object_key
    if isinstance(error, Invalid):
        return NotWritten(error.message, status=400)
    if isinstance(error, Conflict):
        return NotWritten(f"{key}: {error.message}", status=409)
    if isinstance(error, NotFound):
        message = f"{error.message}; create the namespace {filed.stored.namespace} first"
        return NotWritten(message, status=404)
    if isinstance(error, Forbidden):
        return NotWritten(f"this ingress may not write {key}: {error.message}", status=503)
    retry_ms = _RETRY_MS
    if isinstance(error, Unavailable):
        retry_ms = max(retry_ms, error.retry_after_s * 1000.0)
    message = f"the API server cannot be reached, nothing was changed: {error.message}"
    return NotWritten(message, status=503, retry_after_ms=retry_ms)
