"""Prometheus metrics, made from the desk's counts at the moment they are asked for.

Nothing is registered or labelled while requests are served; labels come from closed lists or are capped
(contracts beyond the cap count as "other").
"""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from superinfer_core.refusal import RefusalCode
from superinfer_proto.v1 import engine_pb2
from superinfer_sidecar.counters import Counters, Histogram, Score
from superinfer_sidecar.desk import Desk

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_QUANTILES: Final = (0.5, 0.9, 0.99)
_COUNTED: Final = {
    "submits": "Requests that arrived",
    "admitted": "Requests admitted",
    "finished": "Requests finished without error",
    "cancelled": "Requests cancelled by their ingress or with it",
    "duplicates": "Submits of an attempt that was here already",
    "stale_outputs": "Engine outputs dropped because their attempt is over",
    "frames": "Engine steps followed",
    "tokens": "Tokens passed on",
    "preemptions": "Running requests displaced for more urgent ones",
    "slow_ingresses": "Ingress streams cut off because they did not read",
    "engine_starts": "Engines connected",
    "engine_losses": "Engines lost",
    "engine_hangs": "Engines that had work and CPU, and said nothing for too long",
}


class DeskCollector(Collector):
    """Reads one desk; scraped on the desk's own thread."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @override
    def collect(self) -> Iterable[Metric]:
        """All metrics as of now."""
        counters = self._desk.counters
        for name, text in _COUNTED.items():
            metric = CounterMetricFamily(f"superinfer_sidecar_{name}", text)
            metric.add_metric([], getattr(counters, name))
            yield metric
        refused = CounterMetricFamily(
            "superinfer_sidecar_refused", "Requests refused or failed, by reason", labels=["reason"]
        )
        for code in RefusalCode:
            refused.add_metric([code.value], counters.refused[code.value])
        yield refused
        yield _slack(counters)
        yield from self._gauges()
        yield from _scores({"TTFT": counters.ttft, "ITL": counters.itl, "E2E": counters.e2e})
        yield from self._steps()

    def _gauges(self) -> Iterator[Metric]:
        desk, book = self._desk, self._desk.book
        stages = GaugeMetricFamily("superinfer_sidecar_requests", "Requests here, by stage", labels=["stage"])
        stages.add_metric(["rendering"], len(book.rendering))
        stages.add_metric(["queued"], len(book.queued))
        stages.add_metric(["dispatched"], len(book.dispatched))
        yield stages
        yield _gauge("superinfer_sidecar_waiting_bytes", "Bodies of waiting requests", book.waiting_bytes)
        yield _gauge("superinfer_sidecar_dispatched_places", "Places taken", book.dispatched_places)
        yield _gauge(
            "superinfer_sidecar_back_pressure",
            "q over a second of engine time, q(t+1) = max(0, q + arrivals - capacity)",
            desk.pressure.value,
        )
        yield _gauge(
            "superinfer_sidecar_backlog_ms",
            "Predicted time until work queued now would start",
            desk.dispatcher.backlog_ms(),
        )
        yield _gauge("superinfer_sidecar_engine_up", "Whether an engine serves", desk.engine is not None)
        yield _gauge("superinfer_sidecar_draining", "Whether the sidecar drains", desk.draining)
        yield _gauge("superinfer_predictor_profiled", "Whether a profile is used", desk.planner.profiled)
        if desk.engine is not None:
            info = desk.engine.info
            about = GaugeMetricFamily(
                "superinfer_sidecar_engine_info", "The engine behind", labels=["type", "version", "model"]
            )
            kind = engine_pb2.EngineType.Name(info.type).removeprefix("ENGINE_TYPE_").lower()
            about.add_metric([kind, info.version, info.model], 1)
            yield about

    def _steps(self) -> Iterator[Metric]:
        steps = self._desk.planner.steps
        yield _gauge("superinfer_predictor_step_mape", "Error of predicted step times", steps.mape)
        factor = GaugeMetricFamily(
            "superinfer_predictor_step_factor",
            "Factor on a predicted total at a quantile",
            labels=["quantile"],
        )
        covered = GaugeMetricFamily(
            "superinfer_predictor_step_coverage",
            "Share of totals within the prediction at a quantile",
            labels=["quantile"],
        )
        for quantile in _QUANTILES:
            factor.add_metric([str(quantile)], steps.factor(quantile))
            covered.add_metric([str(quantile)], steps.coverage(quantile))
        yield factor
        yield covered
        faults = CounterMetricFamily("superinfer_sidecar_failed_decisions", "Decisions that failed (bugs)")
        faults.add_metric([], self._desk.planner.faults)
        yield faults
        ignored = CounterMetricFamily("superinfer_predictor_ignored_steps", "Step facts that made no sense")
        ignored.add_metric([], steps.ignored)
        yield ignored


def _gauge(name: str, text: str, value: float) -> Metric:
    metric = GaugeMetricFamily(name, text)
    metric.add_metric([], float(value))
    return metric


def _slack(counters: Counters) -> Metric:
    metric = HistogramMetricFamily(
        "superinfer_slo_slack_time_ms", "Slack of requests when they went to the engine", labels=["contract"]
    )
    for contract, histogram in counters.slack_ms.items():
        metric.add_metric([contract], list(_cumulative(histogram)), histogram.total)
    return metric


def _cumulative(histogram: Histogram) -> Iterator[tuple[str, float]]:
    count = 0
    for bound, bucket in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        count += bucket
        yield bound, count


def _scores(scores: dict[str, Score]) -> Iterator[Metric]:
    labels = ["metric"]
    total = CounterMetricFamily("superinfer_prediction_requests", "Scored predictions", labels=labels)
    covered = CounterMetricFamily(
        "superinfer_prediction_covered", "Requests no later than predicted", labels=labels
    )
    error = CounterMetricFamily(
        "superinfer_prediction_error_ratio", "Sum of |predicted - actual| / actual", labels=labels
    )
    predicted = CounterMetricFamily("superinfer_predicted_ms", "Sum of predictions", labels=labels)
    actual = CounterMetricFamily("superinfer_actual_ms", "Sum of what was measured", labels=labels)
    for metric, score in scores.items():
        total.add_metric([metric], score.predictions)
        covered.add_metric([metric], score.covered)
        error.add_metric([metric], score.error_sum)
        predicted.add_metric([metric], score.predicted_ms_sum)
        actual.add_metric([metric], score.actual_ms_sum)
    yield from (total, covered, error, predicted, actual)


def render_metrics(desk: Desk, *more: Collector) -> bytes:
    """The text a Prometheus server reads; of the desk and whatever else collects."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (DeskCollector(desk), *more):
        registry.register(collector)
    return generate_latest(registry)
