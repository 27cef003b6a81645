"""A tiny Llama with seeded random weights: the whole OpenAI surface, milliseconds a step, no meaning.

The weights are a function of the seed alone, so two engines (and two machines) hold the same model and
agree token for token in float32. One byte of text is one token; the tokens above the bytes are never made
from text, but the model samples them, so they decode to something printable.
"""

import string
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers.pre_tokenizers import ByteLevel

from superinfer_executor.models.chat_templates import chatml_with_tools
from superinfer_executor.models.directory import prepare_directory, progress
from superinfer_executor.models.tokenizer_files import TokenizerRecipe, write_json, write_tokenizer

RECIPE_VERSION = 1
SEED = 20_260_129
LAYERS = 3
HIDDEN = 128
HEADS = 4
HEAD_DIM = 32
INTERMEDIATE = 256
VOCAB = 1_024
MAX_POSITION = 16_384

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOOL_TOKENS = ("<tool_call>", "</tool_call>")
END_OF_TEXT, END_OF_TURN = 0, 2


def prepare_tiny(out_dir: Path) -> Path:
    """Make `out_dir` hold the tiny model; costs about a second once."""
    recipe: dict[str, str | int] = {"model": "tiny", "recipe": RECIPE_VERSION, "seed": SEED}
    directory, _ = prepare_directory(out_dir, recipe, _build)
    return directory


def _build(directory: Path) -> None:
    progress(f"writing a random {LAYERS}-layer Llama (seed {SEED}) with a byte tokenizer")
    save_file(random_weights(SEED), directory / "model.safetensors", metadata={"format": "pt"})
    write_json(directory / "config.json", _CONFIG)
    write_json(directory / "generation_config.json", {"eos_token_id": [END_OF_TURN, END_OF_TEXT]})
    write_tokenizer(
        directory,
        TokenizerRecipe(
            vocab=byte_vocabulary(),
            merges=(),
            special_tokens=SPECIAL_TOKENS,
            atomic_tokens=TOOL_TOKENS,
            pre_tokenizer=ByteLevel(add_prefix_space=False, use_regex=False),
            eos_token="<|im_end|>",  # noqa: S106 - a token of the vocabulary
            pad_token="<|endoftext|>",  # noqa: S106
            chat_template=chatml_with_tools(default_system_prompt=None),
            max_length=MAX_POSITION,
        ),
    )


def byte_vocabulary() -> dict[str, int]:
    """Specials, the 256 bytes, then letter pairs up to the size of the vocabulary."""
    tokens = [*SPECIAL_TOKENS, *TOOL_TOKENS, *sorted(ByteLevel.alphabet())]
    space = "Ġ"  # the byte-level alphabet's letter for a blank
    lower = string.ascii_lowercase
    pairs = [space + letter for letter in string.ascii_letters]
    pairs += [first + second for first in lower for second in lower]
    pairs += [first + second for first in string.digits for second in string.digits]
    tokens += pairs[: VOCAB - len(tokens)]
    return {token: index for index, token in enumerate(tokens)}


def random_weights(seed: int) -> dict[str, np.ndarray]:
    """Every tensor of the checkpoint, float32, drawn in a fixed order."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        drawn: np.ndarray = rng.standard_normal((rows, columns)) * (gain / columns**0.5)
        return np.asarray(drawn, dtype=np.float32)

    ones = np.ones(HIDDEN, dtype=np.float32)
    # Gains well above 1 in the queries and the head keep greedy text from settling on one repeated token,
    # which would make "the same tokens" an empty statement in tests.
    weights = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN, gain=HIDDEN**0.5)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights[prefix + "input_layernorm.weight"] = ones.copy()
        weights[prefix + "post_attention_layernorm.weight"] = ones.copy()
        weights[prefix + "self_attn.q_proj.weight"] = matrix(HEADS * HEAD_DIM, HIDDEN, gain=2.0)
        weights[prefix + "self_attn.k_proj.weight"] = matrix(HEADS * HEAD_DIM, HIDDEN)
        weights[prefix + "self_attn.v_proj.weight"] = matrix(HEADS * HEAD_DIM, HIDDEN, gain=4.0)
        weights[prefix + "self_attn.o_proj.weight"] = matrix(HIDDEN, HEADS * HEAD_DIM, gain=2.0)
        weights[prefix + "mlp.gate_proj.weight"] = matrix(INTERMEDIATE, HIDDEN, gain=2.0)
        weights[prefix + "mlp.up_proj.weight"] = matrix(INTERMEDIATE, HIDDEN)
        weights[prefix + "mlp.down_proj.weight"] = matrix(HIDDEN, INTERMEDIATE, gain=2.0)
    weights["model.norm.weight"] = ones.copy()
    weights["lm_head.weight"] = matrix(VOCAB, HIDDEN, gain=2.0)
    return weights


_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "float32",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": MAX_POSITION,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "eos_token_id": END_OF_TURN,
    "pad_token_id": END_OF_TEXT,
}
