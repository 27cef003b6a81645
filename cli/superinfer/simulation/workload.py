"""What a simulation or benchmark serves: requests with lengths, tiers, contracts and targets.

Promise: same source, seed and count give the same workload. Frozen values.
"""

import csv
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from superinfer_core.slo import Rank, RequestSlo, Tier
from superinfer_core.words import shown


class TraceInvalid(ValueError):
    """A trace that cannot be read: names the line and the fix."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace."""

    arrived_ms: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class TierMix:
    """A tier's share of requests and its targets as multiples of unloaded times."""

    tier: Tier
    share: float
    ttft_multiple: float
    itl_multiple: float
    availability: float


DEFAULT_MIX = (
    TierMix(Tier.GOLD, 0.2, 3, 4, 0.9),
    TierMix(Tier.SILVER, 0.3, 6, 6, 0.8),
    TierMix(Tier.BRONZE, 0.5, 15, 10, 0.5),
)
"""As `make bench-slo` asks: TTFT 3, 6 or 15 x unloaded + 50 ms, mean ITL 4, 6 or 10 x unloaded."""

TTFT_ALLOWANCE_MS = 50.0
LONGEST_LINE = 65_536
MOST = 1e15
MOST_TOKENS = 16_777_216


@dataclass(frozen=True, slots=True)
class Job:
    """One request to serve.

    Attributes:
        request_id: unique; its number in the workload.
        arrived_ms: from the start of the run.
        prompt_tokens, output_tokens: true lengths.
        tier: its tier.
        slo: its promise (contract state filled in at arrival).
    """

    request_id: str
    arrived_ms: float
    prompt_tokens: int
    output_tokens: int
    tier: Tier
    slo: RequestSlo


def read_trace(path: Path, limit: int | None = None) -> list[TraceRow]:
    """Rows of a CSV or JSON lines, by arrival.

    CSV: `arrived_at` in seconds, `num_prefill_tokens`, `num_decode_tokens`. JSON lines: `timestamp` in ms,
    `input_length`, `output_length`.

    Raises:
        TraceInvalid: a line is too long or has no such numbers; names the request and the field.
        OSError, UnicodeDecodeError: it cannot be read, or is not text.
    """
    if path.is_char_device() or path.is_block_device():
        msg = f"{path} is a device, which may never end; give a file"
        raise TraceInvalid(msg)
    rows: list[TraceRow] = []
    with path.open(encoding="utf-8", newline="") as opened:
        lines = _lines(opened, path)
        source: Iterable[Any]
        if path.suffix in {".jsonl", ".json", ".ndjson"}:
            source, names, scale = map(json.loads, lines), ("timestamp", "input_length", "output_length"), 1.0
        else:
            names, scale = ("arrived_at", "num_prefill_tokens", "num_decode_tokens"), 1000.0
            source = csv.DictReader(lines)
        iterator = iter(source)
        while limit is None or len(rows) < limit:
            where = f"{path}, request {len(rows) + 1}"
            try:
                rows.append(_row(next(iterator), names, scale, where))
            except StopIteration:
                break
            except TraceInvalid:
                raise
            except (ValueError, csv.Error, RecursionError) as error:
                raise TraceInvalid(f"{where}: cannot be read: {str(error)[:200]}") from None
    if not rows:
        msg = f"{path}: no requests"
        raise TraceInvalid(msg)
    return sorted(rows, key=lambda r: r.arrived_ms)


def _lines(opened: TextIO, path: Path) -> Iterator[str]:
    """Lines, none of them longer than a line of a trace can be: a file without line ends is no trace."""
    while line := opened.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise TraceInvalid(
                f"{path}: a line has more than {LONGEST_LINE} characters; is it the right file?"
            )
        if line.strip():
            yield line


def _row(item: Any, names: tuple[str, str, str], scale: float, where: str) -> TraceRow:
    if not isinstance(item, dict):
        raise TraceInvalid(f"{where}: is {shown(item)}, not fields {', '.join(names)}")
    at, prompt, answer = (_number(item, name, where) for name in names)
    return TraceRow(at * scale, _tokens(names[1], prompt, where), _tokens(names[2], answer, where))


def _number(item: dict[str, Any], name: str, where: str) -> float:
    value = item.get(name)
    if value is None:
        raise TraceInvalid(f"{where}: has no {name}; each request needs it")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= MOST:
        raise TraceInvalid(f"{where}: {name} is {shown(value)}; write a number, at most {MOST:.0e}")
    return number


def _tokens(name: str, number: float, where: str) -> int:
    if not (0 <= number <= MOST_TOKENS and number == int(number)):
        raise TraceInvalid(f"{where}: {name} is {number:g}; write a whole number from 0 to {MOST_TOKENS}")
    return int(number)


def synthetic_trace(
    count: int, seed: int, *, rate_per_s: float = 8.0, burst_share: float = 0.3
) -> list[TraceRow]:
    """A seeded mix with bursts: lognormal lengths as in conversations, some arrivals in one instant."""
    rnd = random.Random(seed)
    rows: list[TraceRow] = []
    now = 0.0
    while len(rows) < count:
        burst = rnd.randint(4, 12) if rnd.random() < burst_share / 8 else 1
        for _ in range(min(burst, count - len(rows))):
            prompt = min(8000, max(8, int(rnd.lognormvariate(6.5, 1.1))))
            output = min(1500, max(1, int(rnd.lognormvariate(4.9, 0.9))))
            rows.append(TraceRow(now, prompt, output))
        now += rnd.expovariate(rate_per_s / 1000.0) * burst
    return rows


def repeat_rows(rows: Sequence[TraceRow], count: int) -> list[TraceRow]:
    """The first `count` requests of the trace played again and again."""
    if len(rows) >= count:
        return list(rows[:count])
    span = rows[-1].arrived_ms - rows[0].arrived_ms
    period = span + span / max(1, len(rows) - 1)
    return [
        replace(rows[i % len(rows)], arrived_ms=rows[i % len(rows)].arrived_ms + period * (i // len(rows)))
        for i in range(count)
    ]


def promise(
    rows: Sequence[TraceRow],
    *,
    seed: int,
    unloaded_ttft_ms: Callable[[int], float],
    unloaded_itl_ms: float,
    mix: Sequence[TierMix] = DEFAULT_MIX,
    contracts_per_tier: int = 10,
    max_prompt_tokens: int = 8000,
    rate_scale: float = 1.0,
) -> list[Job]:
    """Jobs of `rows` with tiers and contracts drawn by `seed`; arrivals are divided by `rate_scale`."""
    rnd = random.Random(seed)
    start = rows[0].arrived_ms
    weights = [m.share for m in mix]
    jobs = []
    for i, row in enumerate(rows):
        m = rnd.choices(mix, weights)[0]
        contract = f"bench/{m.tier.value.lower()}-{rnd.randrange(contracts_per_tier)}"
        prompt = min(max_prompt_tokens, max(1, row.prompt_tokens))
        slo = RequestSlo(
            contract,
            Rank(m.tier.rank),
            ttft_ms=m.ttft_multiple * unloaded_ttft_ms(prompt) + TTFT_ALLOWANCE_MS,
            itl_ms=m.itl_multiple * unloaded_itl_ms,
        )
        at = (row.arrived_ms - start) / rate_scale
        jobs.append(Job(f"{i:07d}", at, prompt, max(1, row.output_tokens), m.tier, slo))
    return jobs
