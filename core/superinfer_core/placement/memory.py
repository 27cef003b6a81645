"""How much GPU memory an executor needs: weights, KV cache, and what the engine takes besides.

Promise: pure arithmetic in MiB, rounded up; bad numbers are refused by name.
"""

from dataclasses import dataclass
from math import ceil

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What a model takes.

    Attributes:
        weights_mib: of all of its parameters, as loaded.
        kv_bytes_per_token: keys and values of one token over all layers.
        overhead_mib: activations, CUDA context and graphs.
    """

    weights_mib: int
    kv_bytes_per_token: int
    overhead_mib: int = 2048

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("weights_mib", "kv_bytes_per_token", "overhead_mib"):
            value = getattr(self, name)
            if value < 0:
                msg = f"{name} is {value}; write 0 or more"
                raise ValueError(msg)


def executor_memory_mib(
    model: ModelMemory, *, max_model_len: int, sequences: int, mean_tokens: int | None = None
) -> int:
    """Memory all GPUs of one executor need together.

    Args:
        model: what it takes.
        max_model_len: the longest sequence must fit whatever else runs.
        sequences: that run at once.
        mean_tokens: of a typical sequence; None: all of them may be as long as the longest.
    """
    each = max_model_len if mean_tokens is None else min(mean_tokens, max_model_len)
    tokens = max(max_model_len, each * sequences)
    return model.weights_mib + ceil(model.kv_bytes_per_token * tokens / _MIB) + model.overhead_mib
