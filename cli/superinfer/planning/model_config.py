"""What a model's `config.json` says of its KV cache and of the longest sequence.

An edge: whatever the file holds, the result is numbers within what a pool may state, or a `ConfigUnusable`
that names the field, what it is and what to write. Fields are found under the names that vLLM reads.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from superinfer_core.placement.memory import KvShape
from superinfer_core.words import shown

LONGEST_TOKENS: Final = 16_777_216
"""As engine.maxModelLen of a pool."""
BY_HAND: Final = "state kvBytesPerToken of the pool by hand"

_Layers = Annotated[int, Field(strict=True, ge=1, le=100_000)]
_Heads = Annotated[int, Field(strict=True, ge=1, le=65_536)]
_Values = Annotated[int, Field(strict=True, ge=1, le=16_777_216)]


class ConfigUnusable(ValueError):
    """A field of the file is missing or cannot be what it is."""


_BOUNDS: Final = {"ge": "of at least", "le": "of at most"}


class _Fields(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


_Read = TypeVar("_Read", bound=_Fields)


class _Layered(_Fields):
    layers: _Layers = Field(validation_alias=AliasChoices("num_hidden_layers", "n_layer", "num_layers"))


class _Latent(_Layered):
    """Multi-head latent attention: one compressed vector for all heads."""

    kv_lora_rank: _Values
    qk_rope_head_dim: _Values

    @property
    def shape(self) -> KvShape:
        return KvShape(self.layers, 1, self.kv_lora_rank + self.qk_rope_head_dim)


class _Headed(_Layered):
    heads: _Heads = Field(validation_alias=AliasChoices("num_attention_heads", "n_head"))
    kv_heads: _Heads | None = Field(
        default=None,
        validation_alias=AliasChoices(
            "n_head_kv",
            "num_kv_heads",
            "num_key_value_heads",
            "multi_query_group_num",
            "num_attention_groups",
        ),
    )
    multi_query: bool | None = None
    new_decoder_architecture: bool | None = None

    @property
    def kept(self) -> int:
        """Heads with keys and values of their own; Falcon's older models say by a switch that it is one."""
        if self.multi_query and not self.new_decoder_architecture:
            return 1
        return self.kv_heads or self.heads


class _HeadSize(_Fields):
    head_dim: Annotated[int, Field(strict=True, ge=0, le=16_777_216)] | None = None
    """0 and null mean that it follows from the hidden size."""


class _Hidden(_Fields):
    hidden: _Values = Field(validation_alias=AliasChoices("hidden_size", "n_embd"))


class _Length(_Fields):
    longest: Annotated[int, Field(strict=True, ge=16, le=LONGEST_TOKENS)] | None = Field(
        default=None, validation_alias=AliasChoices("max_position_embeddings", "n_positions")
    )


def read_config(text: bytes) -> Mapping[str, Any]:
    """The fields of the language model in the text of a `config.json`.

    Raises:
        ConfigUnusable: it is not a JSON object.
    """
    try:
        found = from_json(text)
    except ValueError as error:
        raise ConfigUnusable(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigUnusable(f"is {shown(found)}, not an object")
    inner = found.get("text_config") or found
    if not isinstance(inner, dict):
        raise ConfigUnusable(f"text_config is {shown(inner)}; write an object, or leave it out")
    # What the weights are stored as stands outside in some files, inside in others. null says nothing.
    outside = {name: found.get(name) for name in ("dtype", "torch_dtype")}
    return {name: value for name, value in {**outside, **inner}.items() if value is not None}


def kv_shape(fields: Mapping[str, Any], gpus: int) -> KvShape:
    """What the model keeps of a token.

    Args:
        fields: of `read_config`.
        gpus: tensor parallel size, which must go with the heads as vLLM wants it.

    Raises:
        ConfigUnusable: see there.
    """
    if "kv_lora_rank" in fields:
        return _checked(_Latent, fields).shape
    headed = _checked(_Headed, fields)
    size = _checked(_HeadSize, fields).head_dim
    if not size:
        size = _checked(_Hidden, fields).hidden // headed.heads
        if not size:
            raise ConfigUnusable(f"hidden_size is below num_attention_heads ({headed.heads}); add head_dim")
    _check_split(headed.heads, headed.kept, gpus)
    return KvShape(headed.layers, headed.kept, 2 * size)


def longest_sequence(fields: Mapping[str, Any]) -> int | None:
    """The model's own limit of tokens; None where it does not say.

    Raises:
        ConfigUnusable: see there.
    """
    return _checked(_Length, fields, by_hand="give --max-model-len").longest


def _check_split(heads: int, kv_heads: int, gpus: int) -> None:
    """Refuse what vLLM does: every GPU gets as many heads, and whole KV heads."""
    fits = [n for n in range(1, 73) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)]
    if gpus not in fits:
        raise ConfigUnusable(
            f"vLLM cannot split {heads} attention heads and {kv_heads} KV heads over {gpus} GPUs; "
            f"give --gpus {' or '.join(map(str, fits))}"
        )


def _checked(model: type[_Read], fields: Mapping[str, Any], by_hand: str = BY_HAND) -> _Read:
    try:
        return model.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if first["type"] == "missing":
        raise ConfigUnusable(f"has no {_names(model, str(first['loc'][0]))}; {by_hand}")
    limits = first.get("ctx", {})
    bound = next((f" {word} {limits[key]}" for key, word in _BOUNDS.items() if key in limits), "")
    wanted = "true or false" if first["type"].startswith("bool") else f"a whole number{bound}"
    raise ConfigUnusable(f"{first['loc'][0]} is {shown(first['input'])}; write {wanted}, or {by_hand}")


def _names(model: type[_Fields], found: str) -> str:
    """Every name a field may have."""
    for field in model.model_fields.values():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices) and found in alias.choices:
            return " or ".join(map(str, alias.choices))
    return found
