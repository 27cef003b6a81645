"""What the bytes of a KV block mean, as one identity: blocks of another layout are never read. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class LayoutFacts:
    """Everything that changes what a block's bytes are, or which bytes are right.

    Attributes:
        engine: name and version of the engine; its memory layout is private to it.
        platform: device family and, on CPU, the instruction set that packs the cache.
        weights: fingerprint of the model's weights.
        model: the model's configuration, as the engine resolved it.
        cache_dtype: of the KV cache.
        block_tokens: tokens of one block.
        block_bytes: bytes of one block over all layers.
        layers: names of the layers, in the order their bytes come in.
        hashing: how block hashes are made (algorithm and seed).
    """

    engine: str
    platform: str
    weights: str
    model: Mapping[str, object]
    cache_dtype: str
    block_tokens: int
    block_bytes: int
    layers: tuple[str, ...]
    hashing: str


def layout_id(facts: LayoutFacts) -> str:
    """32 hex digits: equal for equal facts, in every process."""
    text = json.dumps(asdict(facts), sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
