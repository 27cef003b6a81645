"""The tokenizer files of a Hugging Face model directory, written from plain data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import PreTokenizer


@dataclass(frozen=True)
class TokenizerRecipe:
    """A byte-level BPE tokenizer.

    Attributes:
        vocab: token string (in the byte-level alphabet) to id.
        merges: pairs, best first; empty means one token per byte.
        special_tokens: stripped from decoded text.
        atomic_tokens: matched whole in text like special ones, but kept in decoded text.
        pre_tokenizer: how text is cut before merging.
        eos_token: ends an assistant turn.
        pad_token: fills batches; never produced.
        chat_template: jinja.
        max_length: context the model was made for.
    """

    vocab: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    special_tokens: Sequence[str]
    atomic_tokens: Sequence[str]
    pre_tokenizer: PreTokenizer
    eos_token: str
    pad_token: str
    chat_template: str
    max_length: int


def write_tokenizer(directory: Path, recipe: TokenizerRecipe) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    tokenizer = Tokenizer(BPE(vocab=dict(recipe.vocab), merges=list(recipe.merges)))
    tokenizer.pre_tokenizer = recipe.pre_tokenizer
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in recipe.special_tokens]
    )
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in recipe.atomic_tokens]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "eos_token": recipe.eos_token,
            "pad_token": recipe.pad_token,
            "model_max_length": recipe.max_length,
        },
    )
    (directory / "chat_template.jinja").write_text(recipe.chat_template, encoding="utf-8")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """One JSON document, readable in a diff."""
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
