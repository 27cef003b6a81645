"""How much GPU memory an executor needs: weights, KV cache, and what the engine takes besides.

Promise: pure arithmetic in MiB, rounded up; bad numbers are refused by name. What cannot be told from a
model's configuration is a `MemoryUnknown` that says which field is missing, never a guess.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletPoolSpec
from superinfer_core.api.v1alpha1.pool_model import DEFAULT_OVERHEAD_MIB

DEFAULT_ENGINE_PERCENT: Final = 90
"""How much of a GPU vLLM takes unless it is told otherwise; some versions take a little more."""

_MIB: Final = 1 << 20
_ENGINE_SHARE_ARGS: Final = ("--gpu-memory-utilization", "--gpu_memory_utilization")
_KV_BYTES: Final = {"float32": 4, "fp8": 1}
"""By type; two bytes for everything else vLLM keeps a cache in."""


class MemoryUnknown(ValueError):
    """A model's configuration does not say what its KV cache takes."""


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What a model takes.

    Attributes:
        weights_mib: of all of its parameters, as loaded.
        kv_bytes_per_token: keys and values of one token over all layers.
        overhead_mib: of every GPU: activations, CUDA context and graphs.
    """

    weights_mib: int
    kv_bytes_per_token: int
    overhead_mib: int = DEFAULT_OVERHEAD_MIB

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("weights_mib", "kv_bytes_per_token", "overhead_mib"):
            value = getattr(self, name)
            if value < 0:
                msg = f"{name} is {value}; write 0 or more"
                raise ValueError(msg)


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
    """What an executor on `gpus` GPUs needs: weights and KV cache are split over them, overhead is not."""
    kv_mib = ceil(model.kv_bytes_per_token * kv_tokens / _MIB)
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
    model = ModelMemory(stated.weights_mib, stated.kv_bytes_per_token, stated.overhead_mib)
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


def kv_bytes_per_token(config: Mapping[str, Any], *, kv_type: str = "auto", gpus: int = 1) -> int:
    """Bytes of KV cache one token takes over all layers and GPUs, from a Hugging Face `config.json`.

    Layers that keep less than all tokens (sliding windows, state spaces) are counted as if they kept all.

    Args:
        config: the file as it was read.
        kv_type: of the cache: auto is two bytes a value, fp8 one.
        gpus: tensor parallel size; heads that are fewer than GPUs are kept once on each.

    Raises:
        MemoryUnknown: a field is missing.
    """
    text = config.get("text_config")
    fields = text if isinstance(text, Mapping) else config
    size = _KV_BYTES.get("fp8" if kv_type.startswith("fp8") else kv_type, 2)
    layers = _whole(fields, "num_hidden_layers", "n_layer", "num_layers")
    if "kv_lora_rank" in fields:
        # Multi-head latent attention keeps one compressed vector for all heads, on every GPU.
        return (
            layers
            * (_whole(fields, "kv_lora_rank") + _whole(fields, "qk_rope_head_dim"))
            * size
            * max(1, gpus)
        )
    heads = _whole(fields, "num_attention_heads", "n_head")
    kv_heads = int(fields.get("num_key_value_heads") or heads)
    head_dim = int(fields.get("head_dim") or _whole(fields, "hidden_size", "n_embd") // heads)
    return 2 * layers * max(kv_heads, gpus) * head_dim * size


def longest_sequence(config: Mapping[str, Any]) -> int | None:
    """The model's own limit of tokens; None where it does not say."""
    text = config.get("text_config")
    fields = text if isinstance(text, Mapping) else config
    found = fields.get("max_position_embeddings") or fields.get("n_positions")
    return int(found) if found else None


def _whole(fields: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and value > 0:
            return value
    msg = f"config.json has no {' or '.join(names)}; write kvBytesPerToken by hand"
    raise MemoryUnknown(msg)
