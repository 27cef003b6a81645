"""What the engine can do in this run: unloaded times through the whole path, and saturation.

Everything is relative to these, so a slower or busier machine changes the scale and not the comparison.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from superinfer.load.bodies import token_bodies
from superinfer.load.client import LoadClient
from superinfer.load.record import RequestRecord
from superinfer.load.run import Load, Run, open_loop
from superinfer.simulation.workload import Job
from superinfer_bench.slo.settings import MODEL_NAME, SloSettings
from superinfer_bench.stack import BenchFailed
from superinfer_core.slo import Rank, RequestSlo, Tier

PROMPTS = (16, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6000, 8000)
DECODED = 33


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Times on an idle engine, as a client sees them.

    Attributes:
        prompt_tokens, ttft_ms: measured medians.
        curve: constant, per token and per token squared: the fit through them.
        itl_ms: mean time between tokens of one answer alone.
    """

    prompt_tokens: tuple[int, ...]
    ttft_ms: tuple[float, ...]
    curve: tuple[float, float, float]
    itl_ms: float

    def ttft(self, prompt_tokens: int) -> float:
        """Of a prompt of any length."""
        constant, linear, square = self.curve
        return constant + prompt_tokens * (linear + prompt_tokens * square)

    def as_json(self) -> dict[str, Any]:
        """For the result file."""
        points = zip(self.prompt_tokens, self.ttft_ms, strict=True)
        return {
            "itl_ms": round(self.itl_ms, 3),
            "ttft_curve": [float(f"{c:.6g}") for c in self.curve],
            "ttft_ms": [{"prompt_tokens": p, "ttft_ms": round(t, 3)} for p, t in points],
        }


async def measure_unloaded(client: LoadClient, settings: SloSettings, say: Callable[[str], None]) -> Unloaded:
    """One request at a time."""
    rnd = random.Random(settings.seed)
    lengths = [p for p in PROMPTS if p <= settings.max_prompt_tokens]
    if settings.quick:
        lengths = lengths[::3]
    await _alone(client, 64, rnd)  # first-use costs belong to nobody
    ttfts, itls = [], []
    for length in lengths:
        say(f"unloaded: a prompt of {length} tokens alone")
        records = [await _alone(client, length, rnd) for _ in range(2 if settings.quick else 5)]
        ttfts.append(median(r.ttft_ms or 0.0 for r in records))
        if length <= 256:
            itls += [r.itl_ms for r in records if r.itl_ms is not None]
    return Unloaded(tuple(lengths), tuple(ttfts), fit_curve(lengths, ttfts), median(itls))


def fit_curve(prompt_tokens: Sequence[int], ttft_ms: Sequence[float]) -> tuple[float, float, float]:
    """Least squares of the relative error, no coefficient below zero: longer prefills are never cheaper.

    A measurement that the machine disturbed moves the curve a little instead of being a target of its own.
    """
    tokens, times = np.asarray(prompt_tokens, dtype=float), np.asarray(ttft_ms, dtype=float)
    powers = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1) / times[:, None]
    best, least = (float(np.median(times)), 0.0, 0.0), float("inf")
    for kept in ((0, 1, 2), (0, 1), (0, 2), (1, 2), (0,)):
        found, *_ = np.linalg.lstsq(powers[:, kept], np.ones_like(times), rcond=None)
        error = float(np.sum((powers[:, kept] @ found - 1.0) ** 2))
        if np.all(found >= 0) and error < least:
            filled = dict(zip(kept, map(float, found), strict=True))
            best, least = (filled.get(0, 0.0), filled.get(1, 0.0), filled.get(2, 0.0)), error
    return best


async def measure_saturation(
    client: LoadClient, jobs: Sequence[Job], progress: Callable[[RequestRecord], None]
) -> Run:
    """Everything at once."""
    at_once = [replace(job, arrived_ms=0.0) for job in jobs]
    return await open_loop(client, at_once, Load(token_bodies(MODEL_NAME, "saturation")), progress)


async def _alone(client: LoadClient, prompt_tokens: int, rnd: random.Random) -> RequestRecord:
    name = f"alone-{prompt_tokens}-{rnd.randrange(1 << 30)}"
    job = Job(name, 0.0, prompt_tokens, DECODED, Tier.GOLD, RequestSlo("", Rank(0)))
    load = Load(token_bodies(MODEL_NAME, name), headers=lambda _job: {})
    record = (await open_loop(client, [job], load)).records[0]
    if not record.served:
        raise BenchFailed(f"a request alone was not served: {record.as_json()}")
    return record
