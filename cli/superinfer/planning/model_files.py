"""What a model directory says of the memory the model takes: its configuration, and the sizes of its weights.

Reads headers of safetensors files, never the weights. What cannot be read is a `CannotMeasure` that says
what to write by hand.
"""

import json
import struct
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any, Final

from superinfer_core.placement.memory import MemoryUnknown, kv_bytes_per_token, longest_sequence

_MIB: Final = 1 << 20
_MAX_HEADER_BYTES: Final = 100_000_000
_BITS: Final = {"F64": 64, "F32": 32, "I64": 64, "I32": 32, "I16": 16, "F4": 4}
"""Of a value, where it is neither of two bytes nor of one."""
_ONE_BYTE: Final = ("F8", "I8", "U8", "BOOL")


class CannotMeasure(Exception):
    """A model directory cannot be read; says what to do."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What the files of a model say.

    Attributes:
        weights_mib: as loaded; what is stored with four bytes is loaded with two.
        weights_files: how many they are in.
        kv_bytes_per_token: over all GPUs.
        max_model_len: the model's own limit, None where it does not say.
    """

    weights_mib: int
    weights_files: int
    kv_bytes_per_token: int
    max_model_len: int | None


def read_model(directory: Path, *, kv_type: str = "auto", gpus: int = 1) -> ModelFiles:
    """Look at a model directory.

    Args:
        directory: with config.json and weights.
        kv_type: of the KV cache, as vLLM's --kv-cache-dtype.
        gpus: tensor parallel size.

    Raises:
        CannotMeasure: see there.
    """
    config = _json(directory / "config.json")
    try:
        per_token = kv_bytes_per_token(config, kv_type=kv_type, gpus=gpus)
    except MemoryUnknown as unknown:
        raise CannotMeasure(f"{directory / 'config.json'}: {unknown}") from None
    files = _weights(directory)
    halved = str(config.get("dtype") or config.get("torch_dtype") or "") == "float32"
    size = sum(_loaded_bytes(file, halved=halved) for file in files)
    return ModelFiles(ceil(size / _MIB), len(files), per_token, longest_sequence(config))


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotMeasure(
            f"{file}: {error.strerror or error}; give a Hugging Face model directory"
        ) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise CannotMeasure(f"{file}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise CannotMeasure(f"{file}: holds {type(found).__name__}, not an object")
    return found


def _weights(directory: Path) -> list[Path]:
    """The files that are loaded: those of the index, where there is one; a copy may lie beside them."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        return [directory / name for name in sorted(set(_json(index).get("weight_map", {}).values()))]
    found = sorted(directory.glob("*.safetensors"))
    shards = [file for file in found if not file.name.startswith("consolidated")]
    found = shards or found or sorted(directory.glob("pytorch_model*.bin"))
    if not found:
        raise CannotMeasure(f"{directory}: no *.safetensors or pytorch_model*.bin; write weightsMiB by hand")
    return found


def _loaded_bytes(file: Path, *, halved: bool) -> int:
    try:
        if file.suffix != ".safetensors":
            size = file.stat().st_size
            return size // 2 if halved else size
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > _MAX_HEADER_BYTES:
                raise CannotMeasure(f"{file}: not a safetensors file")
            header = json.loads(opened.read(length))
        tensors = [one for name, one in header.items() if name != "__metadata__"]
        bits: int = sum(prod(one["shape"]) * _bits(one["dtype"], halved=halved) for one in tensors)
        return bits // 8
    except OSError as error:
        raise CannotMeasure(f"{file}: {error.strerror or error}") from None
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotMeasure(f"{file}: not a safetensors file ({error!r})") from None


def _bits(dtype: str, *, halved: bool) -> int:
    if dtype.startswith(_ONE_BYTE):
        return 8
    bits = _BITS.get(dtype, 16)
    return 16 if halved and dtype == "F32" else bits
