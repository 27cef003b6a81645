"""What a model directory says of the memory the model takes: its configuration, and the sizes of its weights.

Reads headers of safetensors files, never the weights. What cannot be read is a `CannotMeasure` that names
the file and the field, and says what to write by hand.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from superinfer.planning.model_config import ConfigUnusable, kv_shape, longest_sequence, read_config
from superinfer_core.contract.field_errors import path_of
from superinfer_core.placement.memory import KvShape
from superinfer_core.small_input import MOST_BYTES
from superinfer_core.words import shown
from superinfer_ingress.small_file import read_small_bytes

_MIB: Final = 1 << 20
_MOST_WEIGHTS_MIB: Final = 16_777_216
"""As model.memory.weightsMiB of a pool."""
_MAX_HEADER_BYTES: Final = 100_000_000
_INDEX: Final = "model.safetensors.index.json"
_BITS: Final = {"F64": 64, "F32": 32, "I64": 64, "I32": 32, "I16": 16, "F4": 4}
"""Of a value, where it is neither of two bytes nor of one."""
_ONE_BYTE: Final = ("F8", "I8", "U8", "BOOL")


class CannotMeasure(Exception):
    """A model directory cannot be read; says what to do."""


class KvType(StrEnum):
    """Types of a KV cache whose size is known, as vLLM's --kv-cache-dtype names them."""

    AUTO = "auto"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FP8 = "fp8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    FP8_INC = "fp8_inc"

    @property
    def value_bytes(self) -> int:
        """Of one value; auto is the model's own type, which vLLM loads with two bytes."""
        return 1 if self.name.startswith("FP8") else 2


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What the files of a model say.

    Attributes:
        weights_mib: as loaded; what is stored with four bytes is loaded with two.
        weights_files: how many they are in.
        kv: what it keeps of every token.
    """

    weights_mib: int
    weights_files: int
    kv: KvShape
    _config_file: Path
    _fields: Mapping[str, Any]

    def longest_sequence(self) -> int | None:
        """The model's own limit of tokens, None where it does not say.

        Raises:
            CannotMeasure: it says something that is none.
        """
        try:
            return longest_sequence(self._fields)
        except ConfigUnusable as unusable:
            raise CannotMeasure(f"{self._config_file}: {unusable}") from None


def read_model(directory: Path, *, gpus: int = 1) -> ModelFiles:
    """Look at a model directory.

    Args:
        directory: with config.json and weights.
        gpus: tensor parallel size.

    Raises:
        CannotMeasure: see there.
    """
    file = directory / "config.json"
    try:
        fields = read_config(_bytes(file, MOST_BYTES, "give a Hugging Face model directory"))
        kv = kv_shape(fields, gpus)
    except ConfigUnusable as unusable:
        raise CannotMeasure(f"{file}: {unusable}") from None
    files = _weights(directory)
    halved = (fields.get("dtype") or fields.get("torch_dtype")) == "float32"
    size = sum(_loaded_bytes(one, halved=halved) for one in files)
    weights_mib = -(-size // _MIB)
    if not 1 <= weights_mib <= _MOST_WEIGHTS_MIB:
        told = shown(weights_mib)
        raise CannotMeasure(
            f"{directory}: the weights come to {told} MiB; is it all there? Or state weightsMiB by hand"
        )
    return ModelFiles(weights_mib, len(files), kv, file, fields)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _Index(_Strict):
    weight_map: Annotated[dict[str, str], Field(min_length=1)]


class _Tensor(_Strict):
    dtype: Annotated[str, Field(max_length=32)]
    shape: Annotated[list[Annotated[int, Field(ge=0, lt=1 << 63)]], Field(max_length=64)]


class _Header(_Strict):
    tensors: dict[str, _Tensor]

    @model_validator(mode="before")
    @classmethod
    def _without_notes(cls, value: Any) -> Any:
        """Beside the tensors there may be notes of any kind."""
        if not isinstance(value, dict):
            return {"tensors": value}
        return {"tensors": {name: one for name, one in value.items() if name != "__metadata__"}}


_Read = TypeVar("_Read", bound=BaseModel)


def _parsed(model: type[_Read], text: bytes, told: str) -> _Read:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    where = path_of(tuple(first["loc"])).removeprefix("tensors.")
    value = "" if first["type"] in ("missing", "json_invalid") else f" is {shown(first['input'])}"
    raise CannotMeasure(f"{told}: {where[:100]}{value}: {first['msg'][:200]}") from None


def _bytes(file: Path, most_bytes: int, fix: str) -> bytes:
    try:
        return read_small_bytes(file, most_bytes)
    except OSError as error:
        raise CannotMeasure(f"{file}: {error.strerror or error}; {fix}") from None


def _weights(directory: Path) -> list[Path]:
    """The files that are loaded: those of the index, where there is one; a copy may lie beside them."""
    index = directory / _INDEX
    if index.is_file():
        fix = "remove it where all weights are in one file"
        named = _parsed(_Index, _bytes(index, _MAX_HEADER_BYTES, fix), f"{index}: not an index of weights")
        names = sorted(set(named.weight_map.values()))
        for name in names:
            if PurePosixPath(name).name != name or not (directory / name).is_file():
                raise CannotMeasure(
                    f"{index}: weight_map names {shown(name)}, which is not there; is the download complete?"
                )
        return [directory / name for name in names]
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
        header = _header(file)
    except OSError as error:
        raise CannotMeasure(f"{file}: {error.strerror or error}") from None
    told = f"{file}: not a safetensors file"
    tensors = _parsed(_Header, header, told).tensors.values()
    bits: int = sum(prod(one.shape) * _bits(one.dtype, halved=halved) for one in tensors)
    return bits // 8


def _header(file: Path) -> bytes:
    """The JSON before the weights."""
    with file.open("rb") as opened:
        begin = opened.read(8)
        length = struct.unpack("<Q", begin)[0] if len(begin) == 8 else 0
        header = opened.read(length) if 0 < length <= _MAX_HEADER_BYTES else b""
    if not header or len(header) < length:
        raise CannotMeasure(f"{file}: not a safetensors file, or not all of it; is the download complete?")
    return header


def _bits(dtype: str, *, halved: bool) -> int:
    if dtype.startswith(_ONE_BYTE):
        return 8
    bits = _BITS.get(dtype, 16)
    return 16 if halved and dtype == "F32" else bits
