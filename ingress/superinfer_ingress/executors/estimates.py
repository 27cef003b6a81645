"""What a request would cost an executor, as far as its last report tells. Pure."""

from typing import Final

from superinfer_ingress.executors.link import ExecutorLink

_BYTES_PER_TOKEN: Final = 4
_UNKNOWN_STEP_TOKENS: Final = 2048


def tokens_of(body_bytes: int) -> int:
    """About how many prompt tokens a body has; the engine that renders it knows."""
    return max(1, body_bytes // _BYTES_PER_TOKEN)


def prefill_ms(link: ExecutorLink, tokens: int) -> float:
    """Time to compute so many tokens there, at the quantile it reports; 0 where nothing is known yet."""
    load, model, engine = link.load, link.model, link.engine
    if model is None or engine is None:
        return 0.0
    chunk = engine.max_num_batched_tokens or _UNKNOWN_STEP_TOKENS
    factor = 1.0 if load is None else max(1.0, load.residual_quantile)
    return model.prefill_ms(tokens, chunk_tokens=chunk) * factor
