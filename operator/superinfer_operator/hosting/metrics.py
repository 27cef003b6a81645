"""Metrics, read off the operator's state when they are scraped: what is gone leaves no series behind."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from superinfer_core.contract.conditions import ConditionType
from superinfer_core.placement import ExecutorPhase
from superinfer_operator.hosting.runtime import Runtime
from superinfer_operator.reconciling.clock import system_clock

_PREFIX = "superinfer_operator"


class OperatorCollector(Collector):
    """Metrics of one operator; labels are pools and closed lists of reasons."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @override
    def collect(self) -> Iterable[Metric]:
        """Everything, as it is now."""
        yield from self._rounds()
        # Several replicas are one operator: what they say together must not count anything twice.
        if self._runtime.leads:
            yield from self._pools()
            yield from self._contracts()
            left_out = self._runtime.reconciler.keys_left_out
            yield _gauge("api_keys_left_out", "API keys that do not work for want of room.", left_out)

    def _rounds(self) -> Iterable[Metric]:
        runtime, loop = self._runtime, self._runtime.loop
        yield _counter("reconciles", "Rounds that went well.", loop.runs)
        yield _counter("reconcile_failures", "Rounds that did not.", loop.failures)
        yield _counter("api_requests", "Requests to the API server.", runtime.client.requests)
        yield _counter("writes", "Writes to the API server.", runtime.reconciler.writes)
        yield _gauge("reconcile_seconds", "How long the last round took.", loop.took_s)
        yield _gauge("leads", "Whether this replica is the one that works.", float(runtime.leads))
        yield _gauge("synced", "Whether everything is known.", float(runtime.cluster.is_synced))
        away = sum(informer.trouble is not None for informer in runtime.cluster.informers)
        yield _gauge("watches_away", "Watches that hear nothing at the moment.", away)

    def _pools(self) -> Iterable[Metric]:
        executors = GaugeMetricFamily(
            f"{_PREFIX}_executors", "Executors by pool and phase.", labels=("pool", "phase")
        )
        counts: dict[tuple[str, str], int] = {}
        for setup in self._runtime.reconciler.setups.values():
            for phase in ExecutorPhase:
                counts[setup.key, phase.value] = 0
        for pod in self._runtime.cluster.executors(system_clock().seconds):
            at = (pod.pool, pod.phase.value)
            counts[at] = counts.get(at, 0) + 1
        for labels, count in sorted(counts.items()):
            executors.add_metric(labels, count)
        yield executors
        unplaced = GaugeMetricFamily(
            f"{_PREFIX}_unplaced_executors", "Executors without a chiplet.", labels=("pool", "reason")
        )
        for group in self._runtime.reconciler.last_plan.unplaced:
            unplaced.add_metric((group.pool, group.reason.value), group.count)
        yield unplaced

    def _contracts(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            f"{_PREFIX}_contracts", "Contracts by the status of their condition Ready.", labels=("ready",)
        )
        counts = {"True": 0, "False": 0, "Unknown": 0}
        for record in self._runtime.cluster.contracts.objects.values():
            ready = next((c for c in record.conditions if c.type == ConditionType.READY), None)
            counts[ready.status.value if ready is not None else "Unknown"] += 1
        for status, count in counts.items():
            family.add_metric((status,), count)
        yield family


def _counter(name: str, words: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"{_PREFIX}_{name}", words, value=value)


def _gauge(name: str, words: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", words, value=value)
