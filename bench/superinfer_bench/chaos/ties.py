"""Were two tokens a tie? The engine is made to compute the same position again, from the same tokens.

In float32 the last digits of a logit depend on what else is in the batch. Where two tokens are nearer than
that, either is right. Only for requests that take the greatest logit; a sampled token that differs is wrong.
"""

from typing import Final

import httpx

from superinfer_bench.chaos.answers import Answer, Difference
from superinfer_bench.chaos.site import MODEL

EPSILON: Final = 1e-4
"""Of log probability: a hundred times what batches were seen to change."""


async def is_tie(
    client: httpx.AsyncClient, url: str, reference: Answer, got: Answer, difference: Difference
) -> bool:
    """Whether the first tokens that differ are equally good after what comes before them."""
    if difference.at is None or not reference.prompt_token_ids:
        return False
    choice, number = difference.at
    expected = reference.choices[choice].tokens
    there = got.choices[choice].tokens if choice in got.choices else []
    if number >= min(len(expected), len(there)):
        return False
    body = {
        "model": MODEL,
        "prompt": [*reference.prompt_token_ids, *expected[:number]],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": 5,
        "return_tokens_as_token_ids": True,
    }
    answer = await client.post(f"{url}/v1/completions", json=body)
    (best,) = answer.json()["choices"][0]["logprobs"]["top_logprobs"]
    one, other = (best.get(f"token_id:{tokens[number]}") for tokens in (expected, there))
    return one is not None and other is not None and abs(one - other) <= EPSILON
