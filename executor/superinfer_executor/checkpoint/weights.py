"""A fingerprint of a model's weights: other weights under the same name must never share KV.

Reads a little of every file (size, and samples spread over it), since hashing hundreds of gigabytes at each
start would cost minutes. Imports nothing of vLLM.
"""

import os
from pathlib import Path
from typing import Final

import xxhash

SAMPLES: Final = 64
SAMPLE_BYTES: Final = 4096
_PATTERNS: Final = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


def weights_fingerprint(model: str, revision: str | None) -> str:
    """Hex digits that differ for other weights; of the name and revision where the weights are not here."""
    digest = xxhash.xxh3_128()
    directory = Path(model)
    files = sorted({file for pattern in _PATTERNS for file in directory.glob(pattern)})
    if not files:
        digest.update(f"{model}@{revision}".encode())
        return f"name-{digest.hexdigest()}"
    for file in files:
        digest.update(f"{file.name}:{file.stat().st_size}".encode())
        _sample(file, digest)
    return digest.hexdigest()


def _sample(file: Path, digest: "xxhash.xxh3_128") -> None:
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        for number in range(SAMPLES):
            opened.seek(number * max(0, size - SAMPLE_BYTES) // (SAMPLES - 1))
            digest.update(opened.read(SAMPLE_BYTES))
