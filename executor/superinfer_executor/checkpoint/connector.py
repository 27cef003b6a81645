"""What vLLM loads: the KV connector, in its scheduler's and its worker's role.

Everything is synchronous and best effort: what is announced is held until it is loaded, a lost save is a
later miss. vLLM's way to recompute a block that fails while it is loaded is not used: it would sample anew
from seeded requests, and let others read a shared block before it is whole.
"""

from typing import TYPE_CHECKING, Any

from typing_extensions import override
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import RequestStatus

from superinfer_executor.checkpoint.engine_layout import EngineLayout
from superinfer_executor.checkpoint.scheduler_side import SchedulerSide
from superinfer_executor.checkpoint.settings import CheckpointSettings
from superinfer_executor.checkpoint.step import StepPlan, StepReport
from superinfer_executor.checkpoint.worker_side import WorkerSide
from superinfer_executor.plugin.register import check_this_vllm

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request


class CheckpointConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """See the module."""

    _cache_hit_source = CacheHitSource.HOST

    def __init__(
        self, vllm_config: "VllmConfig", role: KVConnectorRole, kv_cache_config: "KVCacheConfig"
    ) -> None:
        check_this_vllm()
        super().__init__(vllm_config, role, kv_cache_config)
        extra = self._kv_transfer_config.kv_connector_extra_config
        settings = CheckpointSettings.from_extra_config(extra)
        layout = EngineLayout(vllm_config, kv_cache_config)
        self._blocks = kv_cache_config.num_blocks
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role is KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(settings, layout)
        else:
            self._worker = WorkerSide(settings, layout)

    @property
    @override
    def requires_kv_delivery(self) -> bool:
        return False  # a cache: nobody waits for what it saves

    # --- beside the scheduler

    @override
    def on_new_request(self, request: "Request") -> None:
        self._scheduling.covers(request)

    @override
    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int, bool]:
        return self._scheduling.matched_tokens(request, num_computed_tokens), False

    @override
    def update_state_after_alloc(
        self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int
    ) -> None:
        self._scheduling.allocated(request, num_external_tokens)

    @override
    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        return self._scheduling.plan(scheduler_output)

    @override
    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, StepReport):
            self._scheduling.reported(report)

    @override
    def request_finished(
        self, request: "Request", block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        cut_off = request.status == RequestStatus.FINISHED_ABORTED
        self._scheduling.finished(request.request_id, cut_off=cut_off)
        return False, None

    @override
    def request_finished_all_groups(
        self, request: "Request", block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, list(block_ids[0]) if block_ids else [])

    # --- beside the model

    @override
    def register_kv_caches(self, kv_caches: "dict[str, torch.Tensor]") -> None:
        self._working.register(kv_caches, self._blocks)

    @override
    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        # `start_load_kv` may follow the step's compute, where nothing is loaded; this never does.
        self._working.begin(self._step())

    @override
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._working.load(self._step())

    @override
    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded meanwhile."""

    @override
    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Whole blocks are saved, after the last layer."""

    @override
    def wait_for_save(self) -> None:
        self._working.save(self._step())

    @override
    def build_connector_worker_meta(self) -> StepReport | None:
        return self._working.take_report()

    # --- both

    @override
    def shutdown(self) -> None:
        if self._scheduler is not None:
            self._scheduler.close()

    @property
    def _scheduling(self) -> SchedulerSide:
        assert self._scheduler is not None
        return self._scheduler

    @property
    def _working(self) -> WorkerSide:
        assert self._worker is not None
        return self._worker

    def _step(self) -> StepPlan:
        plan = self._get_connector_metadata()
        assert isinstance(plan, StepPlan)
        return plan
