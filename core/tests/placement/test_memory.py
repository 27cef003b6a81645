"""Memory of an executor: enough for the longest sequence, and for all that run at once."""

import pytest

from superinfer_core.placement.memory import ModelMemory, executor_memory_mib

LLAMA_8B = ModelMemory(weights_mib=15_317, kv_bytes_per_token=131_072)


@pytest.mark.parametrize(
    ("length", "sequences", "mean", "mib"),
    [
        (8192, 1, None, 15_317 + 1024 + 2048),
        (8192, 32, None, 15_317 + 32 * 1024 + 2048),
        (8192, 32, 1024, 15_317 + 4 * 1024 + 2048),
        (8192, 2, 128, 15_317 + 1024 + 2048),
    ],
    ids=["one sequence", "all as long as can be", "typical ones", "the longest alone needs more"],
)
def test_kv_cache_is_counted(length: int, sequences: int, mean: int | None, mib: int) -> None:
    assert executor_memory_mib(LLAMA_8B, max_model_len=length, sequences=sequences, mean_tokens=mean) == mib


def test_a_negative_size_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="weights_mib is -1"):
        ModelMemory(-1, 0)
