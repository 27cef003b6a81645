"""How much GPU memory an executor needs: weights, KV cache, and what the engine takes besides.

Promise: pure arithmetic in MiB, rounded up; bad numbers are refused by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletPoolSpec
from superinfer_core.api.v1alpha1.pool_model import DEFAULT_OVERHEAD_MIB

DEFAULT_ENGINE_PERCENT: Final = 90
"""How much of a GPU vLLM takes unless it is told otherwise; some versions take a little more."""

_MIB: Final = 1 << 20
_ENGINE_SHARE_ARGS: Final = ("--gpu-memory-utilization", "--gpu_memory_utilization")


@dataclass(frozen=True, slots=True)
class KvShape:
    """What a model keeps of every token.

    Attributes:
        layers: that keep anything. Those that keep less than all tokens (sliding windows, state spaces)
            count as if they kept all.
        kv_heads: that have keys and values of their own; one where a compressed vector stands for all heads
            (multi-head latent attention).
        head_values: of one head in one layer, keys and values together.
    """

    layers: int
    kv_heads: int
    head_values: int

    def bytes_per_token(self, value_bytes: int) -> int:
        """Of one token over all layers, every head kept once."""
        return self.layers * self.kv_heads * self.head_values * value_bytes


def kept_heads(kv_heads: int, gpus: int) -> int:
    """KV heads that tensor parallel over so many GPUs keeps, over all of them.

    vLLM divides the heads by the GPUs, and keeps one on several where there are fewer heads than GPUs, so
    that each GPU has at least one (`ModelConfig.get_num_kv_heads`). Where they do not divide, which it
    refuses to run, the GPU with the most counts for all.
    """
    return gpus * -(-kv_heads // gpus)


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What a model takes.

    Attributes:
        weights_mib: of all of its parameters, as loaded.
        kv_bytes_per_token: keys and values of one token over all layers, every head kept once.
        overhead_mib: of every GPU: activations, CUDA context and graphs.
        kv_heads: that the bytes are of; where unknown, they are taken to divide over however many GPUs.
    """

    weights_mib: int
    kv_bytes_per_token: int
    overhead_mib: int = DEFAULT_OVERHEAD_MIB
    kv_heads: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name, least in (
            ("weights_mib", 0),
            ("kv_bytes_per_token", 0),
            ("overhead_mib", 0),
            ("kv_heads", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                msg = f"{name} is {value}; write {least} or more"
                raise ValueError(msg)

    def kv_mib(self, tokens: int, gpus: int) -> int:
        """KV cache of so many tokens over so many GPUs together, rounded up."""
        heads = self.kv_heads or 1
        kept = heads if self.kv_heads is None else kept_heads(heads, gpus)
        return -(-self.kv_bytes_per_token * kept * tokens // (heads * _MIB))


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one executor needs, in MiB over all of its GPUs together.

    Attributes:
        weights_mib, kv_mib, overhead_mib: the parts.
        kv_tokens: tokens the KV cache is for.
        engine_percent: how much of a GPU the engine takes; the chiplet has to be larger by that.
    """

    weights_mib: int
    kv_mib: int
    overhead_mib: int
    kv_tokens: int
    engine_percent: int = DEFAULT_ENGINE_PERCENT

    @property
    def engine_mib(self) -> int:
        """What the engine needs."""
        return self.weights_mib + self.kv_mib + self.overhead_mib

    @property
    def chiplet_mib(self) -> int:
        """GPU memory a chiplet must have."""
        return -(-self.engine_mib * 100 // self.engine_percent)

    def describe(self) -> str:
        """The sum in words."""
        return (
            f"weights {self.weights_mib} MiB + KV cache of {self.kv_tokens} tokens {self.kv_mib} MiB + "
            f"overhead {self.overhead_mib} MiB = {self.engine_mib} MiB, and the engine takes "
            f"{self.engine_percent} % of a GPU: a chiplet of {self.chiplet_mib} MiB"
        )


def kv_tokens_wanted(max_model_len: int, max_num_seqs: int, at_once: int | None = None) -> int:
    """Tokens the KV cache must hold so that no request has to give way to another.

    Args:
        max_model_len: the longest sequence; it must fit whatever else runs.
        max_num_seqs: that the engine runs at once.
        at_once: that contracts allow at once; None where they do not say.
    """
    sequences = max_num_seqs if at_once is None else min(max_num_seqs, at_once)
    return max_model_len * max(1, sequences)


def memory_need(
    model: ModelMemory, *, kv_tokens: int, gpus: int = 1, engine_percent: int = DEFAULT_ENGINE_PERCENT
) -> MemoryNeed:
    """What an executor on `gpus` GPUs needs.

    Weights and KV heads are split over them; a head that is kept on several counts on each, and so does the
    overhead.
    """
    kv_mib = model.kv_mib(kv_tokens, gpus)
    return MemoryNeed(model.weights_mib, kv_mib, model.overhead_mib * gpus, kv_tokens, engine_percent)


def need_of_pool(spec: ChipletPoolSpec, *, at_once: int | None, gpus: int) -> MemoryNeed | None:
    """What an executor of a pool needs on so many GPUs; None where the pool does not say.

    Args:
        spec: of the pool.
        at_once: requests its contracts allow at once; None where they do not say.
        gpus: of one chiplet.
    """
    stated, engine = spec.model.memory, spec.engine
    if stated is None:
        return None
    tokens = stated.kv_tokens
    if tokens is None:
        assert engine.max_model_len is not None
        assert engine.max_num_seqs is not None
        tokens = kv_tokens_wanted(engine.max_model_len, engine.max_num_seqs, at_once)
    model = ModelMemory(stated.weights_mib, stated.kv_bytes_per_token, stated.overhead_mib, stated.kv_heads)
    return memory_need(model, kv_tokens=tokens, gpus=gpus, engine_percent=engine_percent(engine.args or ()))


def engine_percent(engine_args: Sequence[str]) -> int:
    """How much of a GPU the engine takes, from its arguments; the last one counts, as for the engine."""
    percent = DEFAULT_ENGINE_PERCENT
    for place, argument in enumerate(engine_args):
        name, _, value = argument.partition("=")
        if name in _ENGINE_SHARE_ARGS:
            text = value or next(iter(engine_args[place + 1 :]), "")
            try:
                stated = float(text) * 100
            except ValueError:
                continue
            if 1 <= stated <= 100:
                percent = int(round(stated, 6))  # 0.57 * 100 is a hair below 57
    return percent
