"""Writes to the API server, a bounded number at a time, with every failure kept by name.

Promise: one failed write stops nothing else; `taken_failures` says afterwards what has to be tried again.
Objects are written by server-side apply as one field manager. Pods are created instead: a pod of that name
that exists already is the same executor, and must not be changed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from superinfer_kube.client import Document
from superinfer_kube.errors import AlreadyExists, Conflict, KubeError, NotFound, refuses_object
from superinfer_kube.resources import PODS, Resource

_log = logging.getLogger("superinfer.operator")


OnRefusal = Callable[[KubeError], None]
"""Hears of an object that the server will not take as things are; that is no failure of a round then."""


class Api(Protocol):
    """The verbs of the API server that the operator needs: the seam for tests."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Document:
        """One object."""
        ...

    async def create(self, resource: Resource, document: Mapping[str, Any]) -> Document:
        """A new object."""
        ...

    async def apply(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        subresource: str | None = None,
    ) -> Document:
        """Server-side apply."""
        ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete an object."""
        ...


class Writer:
    """Writes, at most `at_once` at a time."""

    def __init__(self, api: Api, *, at_once: int = 16) -> None:
        self.api = api
        self._places = asyncio.Semaphore(at_once)
        self.failures: list[KubeError] = []
        """What went wrong since the last `taken_failures`."""
        self.writes = 0

    def taken_failures(self) -> list[KubeError]:
        """What went wrong, once."""
        taken, self.failures = self.failures, []
        return taken

    async def apply(
        self, resource: Resource, document: Mapping[str, Any], refused: OnRefusal | None = None
    ) -> Document | None:
        """The object as it is after; None where it could not be written."""
        return await self._write(self.api.apply(resource, document), refused)

    async def apply_status(
        self, resource: Resource, namespace: str, name: str, uid: str, status: Mapping[str, Any]
    ) -> Document | None:
        """The object after its status was written; None where it could not be, or is gone."""
        # With the UID a name that was made anew meanwhile is a conflict, not somebody else's status.
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        document = {"metadata": metadata, "status": status}
        return await self._write(self.api.apply(resource, document, subresource="status"))

    async def create(
        self, resource: Resource, document: Mapping[str, Any], refused: OnRefusal | None = None
    ) -> bool | None:
        """Whether it was created; False where something of that name is there; None to try again."""
        async with self._places:
            self.writes += 1
            try:
                await self.api.create(resource, document)
            except AlreadyExists:
                return False
            except KubeError as error:
                self._failed(error, refused)
                return None
        return True

    async def create_pod(self, document: Mapping[str, Any]) -> "Document | KubeError | None":
        """The pod, also where it was there already; why the server will not have it; None to try again."""
        metadata = document["metadata"]
        async with self._places:
            self.writes += 1
            try:
                return await self.api.create(PODS, document)
            except AlreadyExists:
                pass
            except KubeError as error:
                if refuses_object(error):
                    return error
                self._failed(error)
                return None
        return await self._write(self.api.get(PODS, metadata["name"], metadata["namespace"]))

    async def delete_pod(self, namespace: str, name: str, uid: str, *, grace_s: int | None = None) -> bool:
        """Whether its deletion was asked for; also where it is gone already."""
        async with self._places:
            self.writes += 1
            try:
                await self.api.delete(PODS, name, namespace, grace_s=grace_s, uid=uid)
            except NotFound:
                return True
            except Conflict:
                # Another pod by that name: not the one that was meant.
                return False
            except KubeError as error:
                self._failed(error)
                return False
        return True

    async def _write(self, call: Any, refused: OnRefusal | None = None) -> Document | None:
        async with self._places:
            self.writes += 1
            try:
                document: Document = await call
            except (NotFound, Conflict) as error:
                # Gone or changed meanwhile: its watch will say so, and the next round decides anew.
                _log.info("not written: %s", error)
                return None
            except KubeError as error:
                self._failed(error, refused)
                return None
        return document

    def _failed(self, error: KubeError, refused: OnRefusal | None = None) -> None:
        _log.warning("not written: %s", error)
        if refused is not None and refuses_object(error):
            refused(error)
        else:
            self.failures.append(error)
