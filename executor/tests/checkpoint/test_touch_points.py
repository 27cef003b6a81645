"""Every private or experimental thing of vLLM that checkpoints lean on: where to look when it moves."""

import dataclasses
import inspect
from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

CONNECTOR_METHODS = {
    "__init__": ["self", "vllm_config", "role", "kv_cache_config"],
    "on_new_request": ["self", "request"],
    "get_num_new_matched_tokens": ["self", "request", "num_computed_tokens"],
    "update_state_after_alloc": ["self", "request", "blocks", "num_external_tokens"],
    "build_connector_meta": ["self", "scheduler_output"],
    "update_connector_output": ["self", "connector_output"],
    "request_finished": ["self", "request", "block_ids"],
    "register_kv_caches": ["self", "kv_caches"],
    "bind_connector_metadata": ["self", "connector_metadata"],
    "start_load_kv": ["self", "forward_context", "kwargs"],
    "wait_for_save": ["self"],
    "build_connector_worker_meta": ["self"],
    "shutdown": ["self"],
}


@pytest.mark.parametrize("method", CONNECTOR_METHODS)
def test_a_connector_method_takes_what_it_took(method: str) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

    parameters = inspect.signature(getattr(KVConnectorBase_V1, method)).parameters
    assert list(parameters) == CONNECTOR_METHODS[method]


def test_nothing_is_abstract_any_more() -> None:
    from superinfer_executor.checkpoint.connector import CheckpointConnector

    assert not inspect.isabstract(CheckpointConnector)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("vllm.v1.core.sched.output:KVConnectorBlockState", {"req_ids", "resolve_block_ids"}),
        (
            "vllm.v1.kv_cache_interface:KVCacheConfig",
            {"num_blocks", "kv_cache_tensors", "kv_cache_groups", "kv_cache_layout", "hash_block_size"},
        ),
        ("vllm.v1.kv_cache_interface:KVCacheTensor", {"layers"}),
        (
            "vllm.v1.core.sched.output:SchedulerOutput",
            {"num_scheduled_tokens", "kv_connector_block_state", "has_sync_kv_loads"},
        ),
    ],
)
def test_a_class_has_the_fields(path: str, fields: set[str]) -> None:
    module, name = path.split(":")
    found: Any = getattr(__import__(module, fromlist=[name]), name)
    assert fields <= {field.name for field in dataclasses.fields(found)}


def test_hashes_do_not_depend_on_the_process() -> None:
    """Blocks of one engine are found by another only because their names are the same in both."""
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import DEFAULT_NONE_HASH_SEED, resolve_none_hash_seed

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONHASHSEED", raising=False)
        assert resolve_none_hash_seed(get_hash_fn_by_name("sha256")) == DEFAULT_NONE_HASH_SEED


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(
            "vllm.v1.core.sched.scheduler:Scheduler.schedule",
            "self.connector.get_num_new_matched_tokens(",
            id="matched and allocated in one go",
        ),
        pytest.param(
            "vllm.v1.core.sched.scheduler:Scheduler.schedule",
            "self.connector.update_state_after_alloc(",
            id="then told what was allocated",
        ),
        pytest.param(
            "vllm.v1.worker.kv_connector_model_runner_mixin:KVConnectorModelRunnerMixin",
            "start_after_forward = not scheduler_output.has_sync_kv_loads",
            id="loads come before the compute that needs them",
        ),
    ],
)
def test_vllm_still_calls_us_the_way_we_think(path: str, line: str) -> None:
    module, name = path.split(":")
    found: Any = __import__(module, fromlist=["x"])
    for part in name.split("."):
        found = getattr(found, part)
    assert line in inspect.getsource(found)


def test_the_cpu_kernels_say_how_they_pack_the_cache() -> None:
    import torch
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    assert list(inspect.signature(_get_attn_isa).parameters)[:3] == ["dtype", "block_size", "head_size"]
    assert isinstance(_get_attn_isa(torch.float32, 32, 32), str)
