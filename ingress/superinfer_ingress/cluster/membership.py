"""This replica as part of a cluster: what it serves by comes from the API server, its counts go there.

Ready means: everything was listed once, and where the cluster has ready executors at least one of them is
connected, or was. A replica that once was ready stays so while executors or the API server are away: its
refusals say more than a Service without endpoints.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from superinfer_core.contract.conflicts import PoolFacts
from superinfer_ingress.cluster.attainment import AttainmentPublisher, PodIdentity
from superinfer_ingress.cluster.view import ClusterView
from superinfer_ingress.config import Config, KubernetesSettings
from superinfer_ingress.contracts.accounts import Accounts
from superinfer_ingress.contracts.source import ContractSource
from superinfer_ingress.surroundings import Followers

_NAMES: Final = {"slocontracts": "contracts", "chipletpools": "pools"}


class ClusterMember:
    """Implements Surroundings for a cluster."""

    def __init__(
        self,
        config: Config,
        settings: KubernetesSettings,
        *,
        accounts: Accounts,
        clock_ms: Callable[[], float],
        registry: CollectorRegistry,
    ) -> None:
        self._view = ClusterView(config, settings)
        self._was_ready = False
        self._publisher: AttainmentPublisher | None = None
        identity = PodIdentity.of_environment(self._view.namespace)
        if settings.publish_attainment > 0 and identity is not None:
            self._publisher = AttainmentPublisher(
                self._view.client,
                identity,
                accounts,
                clock_ms=clock_ms,
                every_s=settings.publish_attainment,
            )
        registry.register(_WatchMetrics(self._view))

    @property
    def source(self) -> ContractSource:
        """SLOContracts."""
        return self._view.source

    def pools(self) -> Sequence[PoolFacts]:
        """ChipletPools."""
        return self._view.pools()

    def default_contract(self, pool: str) -> str | None:
        """Object key of the pool's defaultContractRef."""
        return self._view.default_contract(pool)

    async def begin(self, followers: Followers) -> None:
        """Nothing: an API server that is away must not keep the process from answering its probes."""

    async def follow(self, followers: Followers) -> None:
        """Watch, and publish counts."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._view.follow(followers))
            if self._publisher is not None:
                tasks.create_task(self._publisher.publish_for_ever())

    def waiting_for(self, *, serving: bool) -> str | None:
        """Everything listed once, and an executor where there are any."""
        if not self._view.in_effect.is_set():
            missing = [
                f"{_NAMES.get(state.name, state.name)}{f' ({state.trouble})' if state.trouble else ''}"
                for state in self._view.states()
                if not state.synced
            ]
            return f"not listed yet: {', '.join(missing)}" if missing else "contracts are not in effect yet"
        if serving or not self._view.executors_ready:
            self._was_ready = True
        return None if self._was_ready else "no ready executor is connected yet"

    def detail(self) -> Mapping[str, Any]:
        """How current what is known is."""
        states = self._view.states()
        away = [state for state in states if state.trouble]
        detail: dict[str, Any] = {
            "api_server": "away" if away else "heard",
            "silent_s": round(max(state.silent_s for state in states), 1),
        }
        if away:
            detail["serving_by"] = "the last state that was heard"
            detail["trouble"] = {state.name: state.trouble for state in away}
        return {"kubernetes": detail}


class _WatchMetrics:
    """Gauges about the watches, read when they are scraped."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        """Called by the registry."""
        up = GaugeMetricFamily(
            "superinfer_kubernetes_watch_up",
            "1 while the watch stands; 0: serving by the last state",
            labels=["resource"],
        )
        silent = GaugeMetricFamily(
            "superinfer_kubernetes_watch_silent_seconds",
            "Since the API server last said something, bookmarks included",
            labels=["resource"],
        )
        objects = GaugeMetricFamily(
            "superinfer_kubernetes_objects", "Objects known by a watch", labels=["resource"]
        )
        relists = GaugeMetricFamily(
            "superinfer_kubernetes_relists", "Times everything was listed", labels=["resource"]
        )
        for state in self._view.states():
            up.add_metric([state.name], 0.0 if state.trouble or not state.synced else 1.0)
            silent.add_metric([state.name], state.silent_s)
            objects.add_metric([state.name], state.objects)
            relists.add_metric([state.name], state.relists)
        yield from (up, silent, objects, relists)
