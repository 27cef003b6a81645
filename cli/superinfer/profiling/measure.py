"""The measurement: prompts of several lengths alone, batches of several sizes, then the fit.

Deterministic but for the engine's own times: prompts are seeded random tokens, all different, so that no
prefix is ever found in a cache.
"""

import platform
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from superinfer.profiling.engine import EngineTroubleError, Measured, MeasuredEngine, Work
from superinfer.profiling.fit import Fit, fit_steps
from superinfer_core.prediction.profile import (
    Profile,
    ResidualQuantile,
    StepCoefficients,
    UnloadedItl,
    UnloadedTtft,
)
from superinfer_core.prediction.step_model import StepFacts
from superinfer_proto.v1 import engine_pb2

SEED = 20260720
PROMPT_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
TOKEN_IDS = range(10, 1000)
"""Ordinary tokens in every vocabulary we know, clear of the special ones at its start."""
SHORT_PROMPT = 16
DECODED_TOKENS = 17


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, within the engine's limits."""

    prompt_lengths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    repeats: int
    decoded_tokens: int = DECODED_TOKENS


@dataclass(frozen=True, slots=True)
class Measurement:
    """A profile, and how well it fits."""

    profile: Profile
    fit: Fit


def plan_for(info: engine_pb2.EngineInfo, *, longest_prompt: int, repeats: int) -> Plan:
    """Lengths and sizes an engine with these limits can take."""
    most = min(longest_prompt, info.max_model_len - 1)
    lengths = tuple(length for length in PROMPT_LENGTHS if length <= most) or (max(1, most),)
    sizes = sorted(
        {*(1 << power for power in range(12) if 1 << power < info.max_num_seqs), info.max_num_seqs}
    )
    return Plan(lengths, tuple(sizes), repeats)


async def measure(
    socket: Path, say: Callable[[str], None], *, longest_prompt: int = 1024, repeats: int = 2
) -> Measurement:
    """Measure the idle engine behind `socket`.

    Raises:
        EngineTroubleError: it cannot be measured.
    """
    tokens = random.Random(SEED)
    async with MeasuredEngine(socket) as engine:
        plan = plan_for(engine.info, longest_prompt=longest_prompt, repeats=repeats)
        runs: list[tuple[StepFacts, ...]] = []
        await engine.run([_work(tokens, SHORT_PROMPT, 4)])  # first-use costs belong to nobody
        ttfts = []
        for length in plan.prompt_lengths:
            say(f"measuring: a prompt of {length} tokens alone")
            alone = [await engine.run([_work(tokens, length, 2)]) for _ in range(plan.repeats)]
            ttfts.append(UnloadedTtft(prompt_tokens=length, ttft_ms=median(m.ttft_ms[0] for m in alone)))
            runs += [m.facts for m in alone]
        itls = []
        for size in plan.batch_sizes:
            for prompt in (SHORT_PROMPT, max(SHORT_PROMPT, min(256, plan.prompt_lengths[-1]))):
                say(f"measuring: {size} answers at a time after prompts of {prompt} tokens")
                room = max(2, min(plan.decoded_tokens, engine.info.max_model_len - prompt))
                batch = await engine.run([_work(tokens, prompt, room) for _ in range(size)])
                runs.append(batch.facts)
                if prompt == SHORT_PROMPT and (itl := _itl_ms(batch, size)) is not None:
                    itls.append(UnloadedItl(seqs=size, itl_ms=itl))
        try:
            fit = fit_steps(runs)
        except ValueError as error:
            raise EngineTroubleError(str(error)) from error
        return Measurement(_profile(engine.info, fit, ttfts, itls), fit)


def machine_name() -> str:
    """Processor, cores and memory: what a profile belongs to."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = (line for line in cpuinfo.read_text().splitlines() if line.startswith("model name"))
        model = next(names, f": {model}").partition(":")[2].strip()
    gib = psutil.virtual_memory().total / (1 << 30)
    return f"{model}, {psutil.cpu_count()} cores, {gib:.0f} GiB"


def _work(tokens: random.Random, prompt: int, output: int) -> Work:
    return Work(tuple(tokens.choices(TOKEN_IDS, k=prompt)), output)


def _itl_ms(measured: Measured, seqs: int) -> float | None:
    steady = [f.step_ms for f in measured.facts if f.decode_seqs == seqs and f.prefill_tokens == 0]
    return median(steady) if steady and median(steady) > 0 else None


def _profile(
    info: engine_pb2.EngineInfo, fit: Fit, ttfts: list[UnloadedTtft], itls: list[UnloadedItl]
) -> Profile:
    model = fit.model
    return Profile(
        model=info.model,
        engine=f"{engine_pb2.EngineType.Name(info.type).removeprefix('ENGINE_TYPE_').lower()} {info.version}",
        machine=machine_name(),
        dtype=info.dtype or "unknown",
        step_model=StepCoefficients(
            base_ms=model.base_ms,
            per_decode_seq_ms=model.per_decode_seq_ms,
            per_decode_context_token_ms=model.per_decode_context_token_ms,
            per_prefill_token_ms=model.per_prefill_token_ms,
            per_prefill_context_token2_ms=model.per_prefill_context_token2_ms,
        ),
        residuals=tuple(ResidualQuantile(quantile=q, factor=factor) for q, factor in fit.residuals),
        max_num_seqs=info.max_num_seqs,
        max_step_tokens=info.max_num_batched_tokens,
        max_model_len=info.max_model_len,
        kv_total_tokens=info.kv_total_tokens or None,
        unloaded_ttft=tuple(ttfts),
        unloaded_itl=tuple(itls),
        mape=fit.mape,
    )
