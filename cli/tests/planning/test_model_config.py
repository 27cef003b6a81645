"""A model's `config.json`: what it says of the KV cache, and every way in which it can say nothing usable."""

import json
from typing import Any

import pytest

from superinfer.planning.model_config import ConfigUnusable, kv_shape, longest_sequence, read_config
from superinfer_core.placement.memory import KvShape

LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131_072,
}
FALCON = {"num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544, "multi_query": True}


def shape(config: object, gpus: int = 1) -> KvShape:
    return kv_shape(read_config(json.dumps(config).encode()), gpus)


READ: list[tuple[str, dict[str, Any], KvShape]] = [
    ("grouped heads", LLAMA, KvShape(32, 8, 256)),
    ("own head size", {**LLAMA, "head_dim": 64}, KvShape(32, 8, 128)),
    ("head size that is null", {**LLAMA, "head_dim": None}, KvShape(32, 8, 256)),
    ("as many KV heads as heads", {**LLAMA, "num_key_value_heads": None}, KvShape(32, 32, 256)),
    ("text part of a larger model", {"text_config": LLAMA, "vision_config": {}}, KvShape(32, 8, 256)),
    ("older names", {"n_layer": 12, "n_head": 12, "n_embd": 768}, KvShape(12, 12, 128)),
    ("one head for all", FALCON, KvShape(32, 1, 128)),
    (
        "Falcon with groups",
        {**FALCON, "new_decoder_architecture": True, "num_attention_heads": 64, "num_kv_heads": 8},
        KvShape(32, 8, 142),
    ),
    ("ChatGLM", {**LLAMA, "num_key_value_heads": None, "multi_query_group_num": 2}, KvShape(32, 2, 256)),
    (
        "latent attention",
        {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_attention_heads": 128},
        KvShape(61, 1, 576),
    ),
]


@pytest.mark.parametrize(("config", "expected"), [case[1:] for case in READ], ids=[case[0] for case in READ])
def test_what_a_token_keeps(config: dict[str, Any], expected: KvShape) -> None:
    assert shape(config) == expected


def test_the_longest_sequence_is_the_models_own_where_it_says() -> None:
    assert longest_sequence(LLAMA) == 131_072
    assert longest_sequence({"n_positions": 1024}) == 1024
    assert longest_sequence({}) is None


BAD: list[tuple[str, str, str]] = [
    ("not JSON", "{", "not JSON"),
    ("too deep", "[" * 100_000, "not JSON"),
    ("a list", "[]", "is [], not an object"),
    ("text", '"x"', "is 'x', not an object"),
    ("empty", "{}", "has no num_hidden_layers or n_layer or num_layers; state kvBytesPerToken"),
    ("a text part that is none", '{"text_config": 7}', "text_config is 7; write an object"),
]


@pytest.mark.parametrize(("text", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_is_no_configuration_says_so(text: str, words: str) -> None:
    with pytest.raises(ConfigUnusable) as refused:
        kv_shape(read_config(text.encode()), 1)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 300


FIELDS = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size")
VALUES = ['"32"', "-1", "0", "1.5", "NaN", "Infinity", "1e400", "9" * 60, "[]", "{}", "true"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("field", FIELDS)
def test_a_number_that_is_none_is_named_with_what_to_write(field: str, value: str) -> None:
    text = json.dumps({**LLAMA, field: "HERE"}).replace('"HERE"', value)
    with pytest.raises(ConfigUnusable, match=f"^{field} is .*write a whole number") as refused:
        kv_shape(read_config(text.encode()), 1)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("value", ["-1", "15", "99999999999", '"long"', "NaN"])
def test_a_length_that_is_none_is_named(value: str) -> None:
    fields = read_config(f'{{"max_position_embeddings": {value}}}'.encode())
    with pytest.raises(ConfigUnusable, match=r"^max_position_embeddings is .*give --max-model-len"):
        longest_sequence(fields)


def test_heads_too_many_for_the_hidden_size_are_named() -> None:
    with pytest.raises(ConfigUnusable, match="hidden_size is below num_attention_heads"):
        shape({**LLAMA, "hidden_size": 16})


@pytest.mark.parametrize(
    ("gpus", "works"),
    [(1, True), (8, True), (16, True), (32, True), (3, False), (5, False), (64, False)],
    ids=lambda value: str(value),
)
def test_only_what_vllm_can_split_is_measured(gpus: int, *, works: bool) -> None:
    if works:
        assert shape(LLAMA, gpus).kv_heads == 8
        return
    with pytest.raises(ConfigUnusable, match="give --gpus 1 or 2 or 4 or 8 or 16 or 32"):
        shape(LLAMA, gpus)
