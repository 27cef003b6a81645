"""OpenAI bodies with prompts of an exact length and answers of an exact length.

Promise: deterministic for (seed, request); no two requests of one seed share a prefix, so a prefix cache
finds nothing that the workload did not put there.
"""

import json
import random
from collections.abc import Callable, Sequence

from superinfer.simulation.workload import Job

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
TOKEN_IDS = range(10, 1000)
"""Ordinary tokens in every vocabulary we know, clear of the special ones at its start."""

Body = Callable[[Job], bytes]


def token_bodies(model: str, seed: str) -> Body:
    """Completions of random token ids: exact prompt lengths, no tokenizer at work."""
    ids: Sequence[int] = TOKEN_IDS

    def body(job: Job) -> bytes:
        drawn = random.Random(f"{seed}/{job.request_id}").choices(ids, k=job.prompt_tokens)
        return _completion(model, drawn, job.output_tokens)

    return body


def text_bodies(model: str, seed: str) -> Body:
    """Completions of random words, about one token each: for servers that take no token ids."""

    def body(job: Job) -> bytes:
        rnd = random.Random(f"{seed}/{job.request_id}")
        words = " ".join(str(rnd.randrange(10)) for _ in range(max(1, job.prompt_tokens // 2)))
        return _completion(model, words, job.output_tokens)

    return body


def _completion(model: str, prompt: list[int] | str, max_tokens: int) -> bytes:
    document = {
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(document, separators=(",", ":")).encode()


def promise_headers(job: Job) -> dict[str, str]:
    """The contract by name, and this request's own targets (headers only ever tighten)."""
    headers = {"x-request-id": job.request_id, "x-slo-contract-id": job.slo.contract}
    if job.slo.ttft_ms is not None:
        headers["x-slo-ttft-ms"] = f"{job.slo.ttft_ms:.3f}"
    if job.slo.itl_ms is not None:
        headers["x-slo-tpot-ms"] = f"{job.slo.itl_ms:.3f}"
    return headers
