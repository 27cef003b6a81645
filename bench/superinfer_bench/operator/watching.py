"""How far the operator is, seen from outside: by watches of its own, so that looking costs it nothing.

Settled means: every contract's and pool's observedGeneration is current, and every planned object is there
(executor pods, a Service and a disruption budget for each pool). One event loop.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from superinfer_bench.operator.population import Size
from superinfer_core.api.v1alpha1.labels import APP_MANAGED_BY_LABEL, MANAGED_BY_OPERATOR
from superinfer_kube.client import KubeClient
from superinfer_kube.informer import Informer, Key
from superinfer_kube.resources import CHIPLET_POOLS, POD_DISRUPTION_BUDGETS, PODS, SERVICES, SLO_CONTRACTS

_OURS = f"{APP_MANAGED_BY_LABEL}={MANAGED_BY_OPERATOR}"


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one object: the generation it has, the one that was looked at, and replicas wanted and there."""

    generation: int
    observed: int
    wanted: int = 0
    existing: int = 0

    @property
    def is_current(self) -> bool:
        """Everything about it is done."""
        return self.generation == self.observed and self.wanted == self.existing


@dataclass(frozen=True, slots=True)
class _Standing:
    """One look."""

    contracts: int
    pools: int
    pods: int
    services: int
    budgets: int


class Observer:
    """Watches what the operator writes."""

    def __init__(self, client: KubeClient) -> None:
        self.contracts: Informer[Progress] = Informer(client, SLO_CONTRACTS, _progress)
        self.pools: Informer[Progress] = Informer(client, CHIPLET_POOLS, _progress)
        self.pods: Informer[str] = Informer(client, PODS, _name, labels=_OURS)
        self.services: Informer[str] = Informer(client, SERVICES, _name, labels=_OURS)
        self.budgets: Informer[str] = Informer(client, POD_DISRUPTION_BUDGETS, _name, labels=_OURS)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self.contracts, self.pools, self.pods, self.services, self.budgets):
                group.create_task(self._follow(informer))

    async def settled(self, size: Size, *, executors: int, timeout_s: float) -> str:
        """Wait until all is done; "" then, else what was still missing after the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_settled(size, executors):
                    await self._next()
        except TimeoutError:
            return str(self._standing())
        return ""

    async def current(self, kind: Informer[Progress], key: Key, generation: int) -> None:
        """Wait until one object is done at a generation or a later one."""
        while True:
            found = kind.objects.get(key)
            if found is not None and found.generation >= generation and found.is_current:
                return
            await self._next()

    def _is_settled(self, size: Size, executors: int) -> bool:
        return self._standing() == _Standing(size.contracts, size.pools, executors, size.pools, size.pools)

    def _standing(self) -> _Standing:
        return _Standing(
            contracts=_current(self.contracts.objects),
            pools=_current(self.pools.objects),
            pods=len(self.pods.objects),
            services=len(self.services.objects),
            budgets=len(self.budgets.objects),
        )

    async def _next(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _follow(self, informer: Informer[Any]) -> None:
        async for _ in informer.changes():
            self._changed.set()


def _current(objects: Mapping[Key, Progress]) -> int:
    return sum(progress.is_current for progress in objects.values())


def _progress(document: Mapping[str, Any]) -> Progress:
    status = document.get("status") or {}
    return Progress(
        generation=document["metadata"]["generation"],
        observed=status.get("observedGeneration", -1),
        wanted=(document.get("spec") or {}).get("replicas", 0),
        existing=status.get("replicas", 0),
    )


def _name(document: Mapping[str, Any]) -> str:
    return str(document["metadata"]["name"])
