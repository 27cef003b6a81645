"""How a pool's checkpoint settings reach its containers: one directory in memory, half of it each. Pure."""

from typing import Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletPool, EngineType
from superinfer_core.pods.paths import CHECKPOINT_PATH

_ENGINE_SHM_MIB: Final = 1024
"""What vLLM and NCCL share between the processes of one engine."""


def is_checkpointed(pool: ChipletPool) -> bool:
    """Whether KV of running requests is kept outside the engine; a stub has none."""
    return pool.spec.checkpoint is not None and pool.spec.engine.type is EngineType.VLLM


def shared_memory_mib(pool: ChipletPool) -> int:
    """How large /dev/shm has to be; 0 where nobody shares memory and the container's own will do."""
    checkpoint = pool.spec.checkpoint
    if pool.spec.engine.type is EngineType.STUB:
        return 0
    return _ENGINE_SHM_MIB + (checkpoint.memory_mib if checkpoint is not None else 0)


def engine_checkpoint_args(pool: ChipletPool) -> list[str]:
    """Arguments of the executor; none where the pool has no checkpoints."""
    checkpoint = pool.spec.checkpoint
    if checkpoint is None or not is_checkpointed(pool):
        return []
    tiers = ",".join(tier.value.lower() for tier in checkpoint.tiers) if checkpoint.tiers else "all"
    return [
        "--checkpoint-dir",
        CHECKPOINT_PATH,
        "--checkpoint-memory-mib",
        str(max(1, checkpoint.memory_mib // 2)),
        "--checkpoint-tiers",
        tiers,
        "--checkpoint-retain-s",
        str(checkpoint.retain_seconds),
    ]


def sidecar_checkpoint_args(pool: ChipletPool) -> list[str]:
    """Arguments of the sidecar; none where the pool has no checkpoints."""
    checkpoint = pool.spec.checkpoint
    if checkpoint is None or not is_checkpointed(pool):
        return []
    return [
        "--checkpoint-dir",
        CHECKPOINT_PATH,
        "--checkpoint-store-mib",
        str(max(1, checkpoint.memory_mib // 2)),
        "--checkpoint-interval-ms",
        str(checkpoint.interval_ms),
        "--checkpoint-replicas",
        str(checkpoint.replicas),
        "--checkpoint-budget-mbps",
        str(checkpoint.budget_mbps),
        "--checkpoint-peers",
        checkpoint.peers.value,
        "--checkpoint-retain-s",
        str(checkpoint.retain_seconds),
    ]
