"""Tails: a request's unfinished block, saved once when it is half full, so that less is computed again.

A block of 32 tokens that has 24 costs a resume several decode steps; with its first half restored it costs a
few tokens. vLLM names full blocks only: a tail's name is made here, from the name before it and its tokens.
Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from superinfer_proto.slab import tail_name

if TYPE_CHECKING:
    from vllm.v1.request import Request


@dataclass(frozen=True, slots=True)
class Tail:
    """So many tokens of the block number `ordinal`."""

    ordinal: int
    tokens: int
    name: bytes


def tail_of(request: "Request", hashes: Sequence[bytes], computed_tokens: int, size: int) -> Tail | None:
    """The tail to save once so many tokens are computed; None where there is none worth it.

    Args:
        request: whose.
        hashes: names of the request's full blocks.
        computed_tokens: after the step.
        size: tokens of a block.
    """
    if computed_tokens < request.num_prompt_tokens or not _is_named_by_tokens(request):
        return None  # the rest of the prompt comes next, and fills the block
    ordinal, tokens = divmod(min(computed_tokens, request.num_tokens), size)
    if tokens < _least(size) or not 1 <= ordinal <= len(hashes):
        return None
    return Tail(ordinal, tokens, _name(request, hashes, ordinal, size, tokens))


def tails_wanted(request: "Request", hashes: Sequence[bytes], size: int) -> Iterator[Tail]:
    """Tails that would spare computing, longest first; one token at least is left to compute."""
    ordinal, most = divmod(request.num_tokens - 1, size)
    if 1 <= ordinal <= len(hashes) and _is_named_by_tokens(request):
        for tokens in range(most, _least(size) - 1, -1):
            yield Tail(ordinal, tokens, _name(request, hashes, ordinal, size, tokens))


def _least(size: int) -> int:
    return max(1, size // 2)


def _name(request: "Request", hashes: Sequence[bytes], ordinal: int, size: int, tokens: int) -> bytes:
    begin = ordinal * size
    return tail_name(hashes[ordinal - 1], request.all_token_ids[begin : begin + tokens])


def _is_named_by_tokens(request: "Request") -> bool:
    """Images and embeddings make a block what its tokens do not say."""
    return not request.mm_features and request.prompt_embeds is None
