"""One of several replicas does the work: whoever holds a Lease of the API server.

Promise: of processes with different identities that trust the same Lease, none begins to lead before the one
before gave up or could not have renewed for the whole of the lease; a leader that cannot renew stops after a
deadline that is shorter than that. A lease is waited out by the watcher's own clock, from when it last saw
the Lease change: clocks of machines are not compared. Who ends in order gives the lease back, so that the
next one need not wait. Not promised: a process that was stopped and goes on (SIGSTOP, a suspended machine)
may write until its next renewal is due. Concurrency: `run` is one task; the work is a task that it starts
and cancels.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, Protocol

from superinfer_kube.client import Document
from superinfer_kube.errors import Conflict, KubeError, NotFound
from superinfer_kube.resources import LEASES, Resource

_log = logging.getLogger("superinfer.kube")

_GIVE_BACK_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Times of an election; whoever takes part should have the same.

    Attributes:
        lease_s: a lease that did not change for so long is anybody's; whole seconds.
        deadline_s: a leader that could not renew for so long stops. The rest of the lease is for one that is
            slow to notice.
        retry_s: how often a leader renews, and the others look.
    """

    lease_s: int = 10
    deadline_s: float = 7.0
    retry_s: float = 2.0


_DEFAULT_TERMS: Final = Terms()


class Api(Protocol):
    """What an election needs of the API server."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Document:
        """One object."""
        ...

    async def create(self, resource: Resource, document: Mapping[str, Any]) -> Document:
        """A new object."""
        ...

    async def patch(
        self, resource: Resource, name: str, namespace: str | None, change: Mapping[str, Any]
    ) -> Document:
        """A merge patch; with a resourceVersion only of that version, else `Conflict`."""
        ...


class Election:
    """One process that stands for election."""

    def __init__(
        self, api: Api, *, namespace: str, name: str, identity: str, terms: Terms = _DEFAULT_TERMS
    ) -> None:
        """Prepare.

        Args:
            api: of the cluster.
            namespace: of the Lease.
            name: of the Lease; it is made where there is none.
            identity: of this process; no two that run together may have the same.
            terms: times.
        """
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._terms = terms
        self._seen: Document = {}
        self._seen_s = monotonic()
        """When the Lease was last seen to change."""
        self.leads = False
        """Whether this process does the work now."""

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Stand for election until cancelled; do the work whenever elected.

        Args:
            work: goes on until it is cancelled; an error in it ends this, too.
        """
        try:
            while True:
                renewed_s = await self._elected()
                await self._lead(work, renewed_s)
        finally:
            await self._give_back()

    async def _elected(self) -> float:
        """Waits until this process is elected; when it asked for that."""
        told = ""
        while True:
            asked_s = monotonic()
            try:
                if await self._take():
                    return asked_s
                says = f"{_holder(self._seen) or 'nobody'} leads; standing by"
            except KubeError as error:
                says = f"nobody can be elected: {error}"
            if says != told:
                _log.info("lease %s/%s: %s", self._namespace, self._name, says)
                told = says
            await asyncio.sleep(self._pause_s())

    async def _take(self) -> bool:
        """Whether the lease is ours now."""
        try:
            self._look(await self._api.get(LEASES, self._name, self._namespace))
        except NotFound:
            # Deleted by hand: its holder may not know yet.
            return not self._is_held() and await self._made()
        if self._is_held():
            return False
        with contextlib.suppress(Conflict):
            await self._write(self._claim(self._seen.get("spec") or {}))
            return True
        return False

    def _is_held(self) -> bool:
        """Whether the lease that was seen is somebody else's yet."""
        return _holder(self._seen) not in ("", self._identity) and self._lease_left_s() > 0

    async def _made(self) -> bool:
        """Whether a new Lease is ours."""
        metadata = {"name": self._name, "namespace": self._namespace}
        with contextlib.suppress(Conflict):
            self._look(await self._api.create(LEASES, {"metadata": metadata, "spec": self._claim({})}))
            return True
        return False

    def _pause_s(self) -> float:
        """Until the next look: scattered, so that several do not ask in step, but not past a lease's end."""
        pause_s = self._terms.retry_s * (0.75 + 0.5 * random.random())
        left_s = self._lease_left_s()
        return pause_s if left_s <= 0 else min(pause_s, left_s)

    def _lease_left_s(self) -> float:
        """How long the lease that was seen is its holder's yet."""
        stated_s = (self._seen.get("spec") or {}).get("leaseDurationSeconds")
        return self._seen_s + float(stated_s or self._terms.lease_s) - monotonic()

    async def _lead(self, work: Callable[[], Coroutine[Any, Any, None]], renewed_s: float) -> None:
        """Works until the lease is lost."""
        _log.info("%s leads", self._identity)
        self.leads = True
        task = asyncio.create_task(work(), name="elected")
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=self._terms.retry_s)
                if done:
                    task.result()
                    return
                asked_s = monotonic()
                left_s = renewed_s + self._terms.deadline_s - asked_s
                try:
                    async with asyncio.timeout(max(0.0, left_s)):
                        kept = await self._renewed()
                except (KubeError, TimeoutError) as error:
                    kept = monotonic() - renewed_s < self._terms.deadline_s
                    _log.warning("the lease could not be renewed: %s", error or "no answer in time")
                else:
                    renewed_s = asked_s
                if not kept:
                    _log.error("%s leads no longer; standing by", self._identity)
                    return
        finally:
            self.leads = False
            await _cancelled(task)

    async def _renewed(self) -> bool:
        """Whether the lease is still ours.

        Raises:
            KubeError: nobody knows.
        """
        spec = {"renewTime": _now_text(), "holderIdentity": self._identity}
        try:
            await self._write(spec)
        except Conflict:
            # Somebody labelled it, say; or took it.
            self._look(await self._api.get(LEASES, self._name, self._namespace))
            if _holder(self._seen) != self._identity:
                return False
            await self._write(spec)
        except NotFound:
            return await self._made()
        return True

    async def _give_back(self) -> None:
        if _holder(self._seen) != self._identity:
            return
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(_GIVE_BACK_S):
                await self._write({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now_text()})

    def _claim(self, before: Mapping[str, Any]) -> dict[str, Any]:
        now = _now_text()
        changes = int(before.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._terms.lease_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": changes + (bool(before) and before.get("holderIdentity") != self._identity),
        }

    async def _write(self, spec: Mapping[str, Any]) -> None:
        version = self._seen["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version}, "spec": spec}
        self._look(await self._api.patch(LEASES, self._name, self._namespace, change))

    def _look(self, lease: Document) -> None:
        """Take note of the Lease as it is."""
        version = lease["metadata"]["resourceVersion"]
        if not self._seen or self._seen["metadata"]["resourceVersion"] != version:
            self._seen_s = monotonic()
        self._seen = lease


async def _cancelled(task: "asyncio.Task[None]") -> None:
    """The task has ended, whatever it came to: what it failed with was told, or does not matter any more."""
    task.cancel()
    await asyncio.wait({task})


def _holder(lease: Mapping[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
