"""Load reports: what ingresses rank executors by, every 50 ms, idle or not."""

from collections.abc import Callable
from typing import Final

from superinfer_proto.v1 import sidecar_pb2
from superinfer_sidecar.desk import Desk
from superinfer_sidecar.planner import REPORT_QUANTILE

REPORT_EVERY_MS: Final = 50.0
_LENGTHS_EVERY: Final = 20
_MOST_CONTRACTS: Final = 200


class LoadReporter:
    """Makes the reports of one sidecar."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._sequence = 0
        self._lengths: list[sidecar_pb2.ContractLoad] = []
        self.running = 0
        self.kv_usage = 0.0
        self.checkpoint_peers: Callable[[], list[str]] = list

    def make(self) -> bytes:
        """The next report, as an encoded FromSidecar."""
        desk = self._desk
        if self._sequence % _LENGTHS_EVERY == 0:
            self._learn_lengths()
        self._sequence += 1
        book, steps = desk.book, desk.planner.steps
        serving = desk.engine is not None
        load = sidecar_pb2.LoadReport(
            generation=desk.engine.info.generation if desk.engine is not None else "",
            serving=serving,
            draining=desk.draining,
            queued=len(book.queued) + len(book.rendering),
            dispatched=len(book.dispatched),
            running=self.running if serving and book.dispatched else 0,
            kv_usage=self.kv_usage if serving and book.dispatched else 0.0,
            queued_prefill_tokens=desk.dispatcher.queued_prefill_tokens(),
            backlog_ms=desk.dispatcher.backlog_ms(),
            back_pressure=desk.pressure.value,
            step_model=steps.model.coefficients,
            residual_quantile=steps.factor(REPORT_QUANTILE),
            sequence=self._sequence,
            contracts=self._lengths,
            checkpoint_peers=self.checkpoint_peers(),
        )
        return sidecar_pb2.FromSidecar(load=load).SerializeToString()

    def _learn_lengths(self) -> None:
        summary = self._desk.planner.lengths.summary()
        self._lengths = [
            sidecar_pb2.ContractLoad(contract=name, output_tokens_p50=p50, output_tokens_p90=p90)
            for name, (p50, p90) in list(summary.items())[:_MOST_CONTRACTS]
        ]
