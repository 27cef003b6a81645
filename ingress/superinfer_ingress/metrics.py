"""Prometheus metrics of the ingress.

Promises: nothing here runs per token; a finished request costs a handful of observations on children that
were looked up before; labels are bounded (contracts in effect up to a cap, then `other`; refusals from the
closed list); gauges about contracts and executors are computed when somebody scrapes.
Concurrency: owned by the event loop, scrape included.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from superinfer_ingress.contracts.accounts import Account, Accounts
from superinfer_ingress.executors.fleet import Fleet
from superinfer_ingress.interruption import Cause
from superinfer_ingress.ledger import LedgerBudget
from superinfer_ingress.record import Record, Served
from superinfer_proto.v1 import engine_pb2

_OTHER: Final = "other"
_NONE: Final = "none"

_LATENCY_MS: Final = (5, 10, 25, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000)
_ITL_MS: Final = (1, 2, 5, 10, 20, 30, 40, 60, 100, 200, 500, 1000)
_SLACK_MS: Final = (-5000, -1000, -500, -200, -100, -50, -10, 0, 10, 50, 100, 200, 500, 1000, 5000, 30_000)
_RATIO: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)


class _ContractMetrics:
    """The children of one contract label, looked up once."""

    __slots__ = ("e2e", "itl", "kept", "predicted_e2e", "predicted_ttft", "slack", "ttft")

    def __init__(self, families: "Metrics", label: str) -> None:
        self.kept = families.kept.labels(label)
        self.ttft = families.ttft.labels(label)
        self.itl = families.itl.labels(label)
        self.e2e = families.e2e.labels(label)
        self.slack = families.slack.labels(label)
        self.predicted_ttft = families.predicted_ttft.labels(label)
        self.predicted_e2e = families.predicted_e2e.labels(label)


class Metrics:
    """Every metric of one ingress, in a registry of its own."""

    def __init__(self, *, contract_cap: int) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.in_flight = Gauge(
            "superinfer_requests_in_flight", "Requests inside this ingress", registry=registry
        )
        self.requests = Counter(
            "superinfer_requests",
            "Finished requests by how they were served",
            ["contract", "outcome"],
            registry=registry,
        )
        self.kept = Counter(
            "superinfer_requests_kept", "Requests that kept their promise", ["contract"], registry=registry
        )
        self.refusals = Counter(
            "superinfer_refusals",
            "Requests refused or failed, by code",
            ["contract", "reason"],
            registry=registry,
        )
        self.hang_ups = Counter(
            "superinfer_client_hang_ups",
            "Clients that left before the end, or were cut off",
            registry=registry,
        )
        self.slow_readers = Counter(
            "superinfer_client_too_slow", "Clients that did not read their answer", registry=registry
        )
        self.preemptions = Counter(
            "superinfer_preemptions", "Times an engine displaced a request", registry=registry
        )
        self.prompt_tokens = Counter(
            "superinfer_prompt_tokens", "Prompt tokens of finished requests", registry=registry
        )
        self.output_tokens = Counter("superinfer_output_tokens", "Output tokens delivered", registry=registry)
        self.resumes = Counter(
            "superinfer_resumes",
            "Attempts that ended before their request, by cause and by what became of the request",
            ["cause", "outcome"],
            registry=registry,
        )
        self.recomputed_tokens = Counter(
            "superinfer_resume_recomputed_tokens",
            "Tokens computed again because an executor was lost",
            registry=registry,
        )
        self.resume_gap = Histogram(
            "superinfer_resume_gap_ms",
            "From the loss of an executor to the next output, as the ingress saw it",
            ["cause"],
            buckets=_LATENCY_MS,
            registry=registry,
        )
        label = ["contract"]
        self.ttft = Histogram(
            "superinfer_ttft_ms",
            "Time to first token, from arrival",
            label,
            buckets=_LATENCY_MS,
            registry=registry,
        )
        self.itl = Histogram(
            "superinfer_itl_ms",
            "Mean time between tokens of a request",
            label,
            buckets=_ITL_MS,
            registry=registry,
        )
        self.e2e = Histogram(
            "superinfer_e2e_ms",
            "Time to the last token, from arrival",
            label,
            buckets=_LATENCY_MS,
            registry=registry,
        )
        self.slack = Histogram(
            "superinfer_slo_slack_time_ms",
            "What was left of the tightest objective; negative: missed by",
            label,
            buckets=_SLACK_MS,
            registry=registry,
        )
        self.predicted_ttft = Histogram(
            "superinfer_ttft_actual_over_predicted",
            "Actual TTFT / predicted",
            label,
            buckets=_RATIO,
            registry=registry,
        )
        self.predicted_e2e = Histogram(
            "superinfer_e2e_actual_over_predicted",
            "Actual E2E / predicted",
            label,
            buckets=_RATIO,
            registry=registry,
        )
        self._cap = contract_cap
        self._labels: dict[str, str] = {}
        self._children: dict[str, _ContractMetrics] = {}
        self._outcomes: dict[tuple[str, Served], Counter] = {}

    def watch(
        self, accounts: Accounts, fleet: Fleet, ledgers: LedgerBudget, clock_ms: Callable[[], float]
    ) -> None:
        """Add the gauges that are computed at scrape time."""
        self.registry.register(_Snapshot(self, accounts, fleet, ledgers, clock_ms))

    def label(self, contract: str) -> str:
        """The label of a contract: itself up to the cap, then `other`."""
        known = self._labels.get(contract)
        if known is None:
            known = contract or _NONE
            if len(self._labels) >= self._cap:
                return _OTHER
            self._labels[contract] = known
        return known

    def finished(self, record: Record) -> None:
        """Count one finished request."""
        label = self.label(record.contract_key)
        if record.cancelled:
            self.hang_ups.inc()
            self.slow_readers.inc(record.too_slow)
        elif record.code is not None:
            self.refusals.labels(label, record.code.value).inc()
        else:
            self._served(label, record.served).inc()
        if record.preempted:
            self.preemptions.inc(record.preempted)
        self.prompt_tokens.inc(record.prompt_tokens)
        self.output_tokens.inc(record.output_tokens)
        if record.resumes:
            self.recomputed_tokens.inc(record.recomputed_tokens)
            for resume in record.resumes:
                if resume.gap_ms is not None:
                    self.resume_gap.labels(resume.cause.value).observe(resume.gap_ms)
        if not record.admitted and not record.kept:
            return
        children = self._children.get(label)
        if children is None:
            children = self._children[label] = _ContractMetrics(self, label)
        if record.kept:
            children.kept.inc()
        if record.admitted:
            _observe_latencies(children, record)

    def _served(self, label: str, served: Served) -> Counter:
        """The child of one way of being served; looking one up is dearer than counting with it."""
        child = self._outcomes.get((label, served))
        if child is None:
            child = self._outcomes[label, served] = self.requests.labels(label, served.value)
        return child

    def resumed(self, cause: Cause, outcome: str) -> None:
        """Count what became of a request that was cut: resumed, restarted, or a refusal code."""
        self.resumes.labels(cause.value, outcome).inc()

    def exposition(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)


def _observe_latencies(children: _ContractMetrics, record: Record) -> None:
    if record.ttft_ms is not None:
        children.ttft.observe(record.ttft_ms)
        if record.predicted_ttft_ms:
            children.predicted_ttft.observe(record.ttft_ms / record.predicted_ttft_ms)
    if record.itl_ms is not None:
        children.itl.observe(record.itl_ms)
    if record.e2e_ms is not None:
        children.e2e.observe(record.e2e_ms)
        if record.predicted_e2e_ms:
            children.predicted_e2e.observe(record.e2e_ms / record.predicted_e2e_ms)
    slack = record.slack_ms()
    if slack is not None:
        children.slack.observe(slack)


class _Snapshot:
    """Gauges read from the state of the process when it is scraped."""

    def __init__(
        self,
        metrics: Metrics,
        accounts: Accounts,
        fleet: Fleet,
        ledgers: LedgerBudget,
        clock_ms: Callable[[], float],
    ) -> None:
        self._metrics = metrics
        self._accounts = accounts
        self._fleet = fleet
        self._ledgers = ledgers
        self._clock_ms = clock_ms

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        yield from self._contracts(self._accounts)
        yield from self._executors()
        held = GaugeMetricFamily("superinfer_ledger_tokens", "Delivered tokens kept for running requests")
        held.add_metric([], self._ledgers.held_tokens)
        yield held

    def _contracts(self, accounts: Iterable[Account]) -> Iterator[Metric]:
        rate = GaugeMetricFamily(
            "superinfer_slo_fulfillment_rate",
            "Share of admitted requests within an objective over its window",
            labels=["contract", "metric", "quantile"],
        )
        budget = GaugeMetricFamily(
            "superinfer_error_budget_left",
            "Share of the error budget left, least over the contract's promises",
            labels=["contract"],
        )
        fulfilled = GaugeMetricFamily(
            "superinfer_contract_fulfilled",
            "1 while every promise holds over the window",
            labels=["contract"],
        )
        availability = GaugeMetricFamily(
            "superinfer_contract_availability", "served / (offered within quota)", labels=["contract"]
        )
        now_ms = self._clock_ms()
        for account in accounts:
            label = self._metrics.label(account.contract.key)
            if label == _OTHER:
                continue  # gauges of different contracts cannot be added up under one name
            attainment = account.attainment(now_ms)
            for entry in attainment.objectives:
                quantile = f"{entry.objective.percentile / 100:g}"
                rate.add_metric([label, entry.objective.metric.value, quantile], entry.budget.share)
            budget.add_metric([label], attainment.budget_left)
            fulfilled.add_metric([label], 1.0 if attainment.fulfilled else 0.0)
            counts = attainment.counts
            if counts.offered:
                availability.add_metric([label], counts.served / counts.offered)
        yield from (rate, budget, fulfilled, availability)

    def _executors(self) -> Iterator[Metric]:
        serving = GaugeMetricFamily(
            "superinfer_executor_serving", "1 while it takes new work", labels=["executor", "pool", "engine"]
        )
        running = GaugeMetricFamily(
            "superinfer_executor_requests", "Requests this ingress has there", labels=["executor", "pool"]
        )
        backlog = GaugeMetricFamily(
            "superinfer_executor_backlog_ms", "Predicted wait of the lowest rank", labels=["executor", "pool"]
        )
        pressure = GaugeMetricFamily(
            "superinfer_executor_back_pressure", "Queued / capacity", labels=["executor", "pool"]
        )
        for link in self._fleet.links:
            # Two pools of one name, in different namespaces, have executors of the same names.
            label = [link.name, link.settings.pool]
            engine = "unknown"
            if link.engine is not None:
                engine = engine_pb2.EngineType.Name(link.engine.type).removeprefix("ENGINE_TYPE_").lower()
            serving.add_metric([*label, engine], 1.0 if link.serving else 0.0)
            running.add_metric(label, len(link.requests))
            if link.load is not None:
                backlog.add_metric(label, link.load.backlog_ms)
                pressure.add_metric(label, link.load.back_pressure)
        yield from (serving, running, backlog, pressure)
