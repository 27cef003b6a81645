"""The layout of this engine's KV blocks, from vLLM's configuration: both sides of the connector agree."""

from typing import TYPE_CHECKING, Any

import vllm
from vllm.platforms import current_platform
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import resolve_none_hash_seed
from vllm.v1.kv_cache_interface import FullAttentionSpec

from superinfer_core.checkpoint.layout import LayoutFacts, layout_id
from superinfer_executor.checkpoint.weights import weights_fingerprint

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


class UnsupportedEngine(RuntimeError):
    """Checkpoints cannot be made of this engine: says why; start it without."""


class EngineLayout:
    """Identity and sizes of one engine's blocks.

    Attributes:
        identity: see core.
        block_tokens: tokens of a block.
        block_bytes: over all layers.
        hashes_per_block: vLLM may hash smaller pieces than blocks.
    """

    def __init__(self, config: "VllmConfig", kv_cache: "KVCacheConfig") -> None:
        spec = _only_spec(config, kv_cache)
        layers = tuple(name for tensor in kv_cache.kv_cache_tensors for name in tensor.layers)
        self.block_tokens = int(spec.block_size)
        self.block_bytes = int(spec.page_size_bytes) * len(layers)
        self.hashes_per_block = self.block_tokens // int(kv_cache.hash_block_size or self.block_tokens)
        model = config.model_config
        algorithm = config.cache_config.prefix_caching_hash_algo
        seed = resolve_none_hash_seed(get_hash_fn_by_name(algorithm))
        self.identity = layout_id(
            LayoutFacts(
                engine=f"vllm {vllm.__version__}",
                platform=_platform(config, spec),
                weights=weights_fingerprint(model.model, model.revision),
                model=_resolved_model(model),
                cache_dtype=f"{spec.dtype} {kv_cache.kv_cache_layout}",
                block_tokens=self.block_tokens,
                block_bytes=self.block_bytes,
                layers=layers,
                hashing=f"{algorithm} {seed} {kv_cache.hash_block_size}",
            )
        )


def _only_spec(config: "VllmConfig", kv_cache: "KVCacheConfig") -> Any:
    parallel = config.parallel_config
    if parallel.world_size != 1:
        raise UnsupportedEngine(
            f"checkpoints of an engine with {parallel.world_size} workers are not supported: start it without"
        )
    if parallel.distributed_executor_backend not in (None, "uni"):
        backend = parallel.distributed_executor_backend
        raise UnsupportedEngine(f"checkpoints need --distributed-executor-backend uni, not {backend}")
    groups = kv_cache.kv_cache_groups
    if len(groups) != 1 or not isinstance(groups[0].kv_cache_spec, FullAttentionSpec):
        kinds = ", ".join(type(group.kv_cache_spec).__name__ for group in groups)
        raise UnsupportedEngine(f"checkpoints need one group of full attention, this model has {kinds}")
    if not config.cache_config.enable_prefix_caching:
        raise UnsupportedEngine("checkpoints need the block hashes of prefix caching: leave it on")
    return groups[0].kv_cache_spec


def _platform(config: "VllmConfig", spec: Any) -> str:
    name = f"{current_platform.device_type} {config.attention_config.backend}"
    if not current_platform.is_cpu():
        return name
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    # The instruction set decides how the CPU kernels pack the cache.
    return f"{name} {_get_attn_isa(config.model_config.dtype, spec.block_size, spec.head_size)}"


def _resolved_model(model: Any) -> dict[str, object]:
    """The resolved configuration without what says nothing about results."""
    found = dict(model.hf_config.to_dict())
    for name in ("_name_or_path", "transformers_version"):
        found.pop(name, None)
    return {**found, "dtype": str(model.dtype), "quantization": str(model.quantization)}
