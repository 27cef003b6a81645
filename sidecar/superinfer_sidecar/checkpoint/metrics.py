"""Checkpoint metrics, made when they are asked for."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from superinfer_proto.slab import Counter
from superinfer_sidecar.checkpoint.counters import Rejected, Restore
from superinfer_sidecar.checkpoint.unit import Checkpoints

_COUNTED: Final = {
    "seen_blocks": "KV blocks the engine saved",
    "missed_scans": "Times the engine saved faster than it was followed",
    "sent_blocks": "KV blocks sent to peers",
    "sent_bytes": "Bytes of KV sent to peers",
    "sent_references": "KV blocks peers had already",
    "taken_blocks": "KV blocks taken from peers",
    "taken_bytes": "Bytes of KV taken from peers",
    "fetched_blocks": "KV blocks fetched to restore requests here",
    "fetched_bytes": "Bytes of KV fetched to restore requests here",
    "served_blocks": "KV blocks that others fetched from here",
    "evicted_blocks": "KV blocks of the store that made room",
    "erased_blocks": "KV blocks of the store erased because nobody needed them",
    "refused_peers": "Calls of peers that may not",
    "broken_streams": "Replication streams that broke",
    "restore_ms": "Milliseconds spent on restoring requests",
}
_ENGINE: Final = {
    Counter.SAVED_BLOCKS: ("engine_saved_blocks", "KV blocks copied out of the engine's cache"),
    Counter.SAVED_NS: ("engine_save_ns", "Nanoseconds of engine steps spent on that"),
    Counter.LOADED_BLOCKS: ("engine_loaded_blocks", "KV blocks copied into the engine's cache"),
    Counter.LOAD_NS: ("engine_load_ns", "Nanoseconds of engine steps spent on that"),
    Counter.LOAD_FAILURES: ("engine_load_failures", "KV blocks that were damaged and computed again"),
    Counter.DEFERRED_BLOCKS: ("engine_deferred_blocks", "KV blocks left for a later step"),
    Counter.NO_ROOM_BLOCKS: ("engine_no_room_blocks", "KV blocks not saved for lack of room"),
    Counter.EVICTED_BLOCKS: ("engine_evicted_blocks", "Saved KV blocks that made room"),
    Counter.ERASED_BLOCKS: ("engine_erased_blocks", "Saved KV blocks erased because nobody needed them"),
}


class CheckpointCollector(Collector):
    """Reads one sidecar's checkpoints; scraped on their own thread."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    @override
    def collect(self) -> Iterable[Metric]:
        """All metrics as of now."""
        counters = self._checkpoints.counters
        for name, text in _COUNTED.items():
            yield _counter(name, text, getattr(counters, name))
        rejected = CounterMetricFamily(
            "superinfer_checkpoint_rejected", "KV blocks not taken or not sent, by reason", labels=["reason"]
        )
        for reason in Rejected:
            rejected.add_metric([reason.value], counters.rejected[reason])
        yield rejected
        restores = CounterMetricFamily(
            "superinfer_checkpoint_restores", "Requests that came from elsewhere", labels=["result"]
        )
        for result in Restore:
            restores.add_metric([result.value], counters.restores[result])
        yield restores
        yield from self._gauges()

    def _gauges(self) -> Iterator[Metric]:
        checkpoints = self._checkpoints
        yield _gauge("lag_blocks", "Saved KV blocks a chosen peer lacks", checkpoints.replicator.lag_blocks)
        yield _gauge("peers", "Peers that hold copies", len(checkpoints.replicator.holders))
        yield _gauge("store_blocks", "KV blocks in the store", checkpoints.store.blocks)
        yield _gauge("streams", "Streams whose KV the engine saves", len(checkpoints.increments.streams))
        slab = checkpoints.increments.slab
        if slab is not None:
            yield _gauge("block_bytes", "Bytes of one KV block", slab.shape.payload_bytes)
            for counter, (name, text) in _ENGINE.items():
                yield _counter(name, text, slab.counted(counter))


def _counter(name: str, text: str, value: float) -> Metric:
    metric = CounterMetricFamily(f"superinfer_checkpoint_{name}", text)
    metric.add_metric([], value)
    return metric


def _gauge(name: str, text: str, value: float) -> Metric:
    metric = GaugeMetricFamily(f"superinfer_checkpoint_{name}", text)
    metric.add_metric([], float(value))
    return metric
