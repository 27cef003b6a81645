"""`superinfer bench`: open-loop load on any OpenAI endpoint, reported per contract."""

import asyncio
import json
import random
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.table import Table

from superinfer import exit_codes
from superinfer.load.bodies import text_bodies, token_bodies
from superinfer.load.client import LoadClient
from superinfer.load.record import RequestRecord
from superinfer.load.report import summarise
from superinfer.load.run import Load, Run, open_loop
from superinfer.numbers import finite
from superinfer.output import Output, OutputOption, console, emit_json, errors, fail
from superinfer.serving.console import Progress, progress_on
from superinfer.simulation.workload import (
    Job,
    TraceInvalid,
    TraceRow,
    read_trace,
    repeat_rows,
    synthetic_trace,
)
from superinfer_core.slo import BEST_EFFORT_TIER_RANK, Rank, RequestSlo, Tier

HELP = """Send open-loop load to an OpenAI endpoint: every request leaves when it is due, answered or not.

Replays a trace (CSV: arrived_at,num_prefill_tokens,num_decode_tokens; JSON lines: timestamp, input_length,
output_length) or a seeded synthetic mix with bursts. Requests are drawn over the contracts given.

\b
Examples:
  superinfer bench --url http://127.0.0.1:8000 --contract gold=0.2 --contract bronze=0.8
  superinfer bench --trace trace.csv --requests 500 --speed 2 --ttft-ms 500 -o json
  superinfer bench --api-key $SUPERINFER_KEY --contract shop/checkout --records records.jsonl

\b
Exit codes:
  0  the run came to its end, whatever was refused
  1  not one request was answered
  2  wrong option: no such trace, nothing at the URL"""


def bench(
    url: Annotated[str, typer.Option(help="Endpoint, without /v1.")] = "http://127.0.0.1:8000",
    model: Annotated[str | None, typer.Option(help="Model; the endpoint's first by default.")] = None,
    contract: Annotated[
        list[str] | None, typer.Option(help="ID or ID=SHARE; repeatable. None: no contract.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="CSV or JSON lines to replay.")] = None,
    requests: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="How many; a short trace is repeated.")
    ] = 100,
    rate: Annotated[
        float, typer.Option(callback=finite, min=0.001, help="Synthetic arrivals per second.")
    ] = 2.0,
    speed: Annotated[
        float, typer.Option(callback=finite, min=0.001, help="Arrivals this many times as fast.")
    ] = 1.0,
    max_prompt: Annotated[int, typer.Option(min=1, help="Longer prompts are cut (tokens).")] = 512,
    max_answer: Annotated[int, typer.Option(min=1, help="Longer answers are cut (tokens).")] = 128,
    ttft_ms: Annotated[
        float | None, typer.Option(callback=finite, min=1, help="Ask this of every request.")
    ] = None,
    itl_ms: Annotated[
        float | None, typer.Option(callback=finite, min=0.01, help="Ask this of every request.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same load.")] = 1,
    text: Annotated[bool, typer.Option("--text", help="Prompts of words, not token ids.")] = False,
    api_key: Annotated[str | None, typer.Option(envvar="SUPERINFER_KEY", help="Bearer key.")] = None,
    records: Annotated[Path | None, typer.Option(help="Write every request as a JSON line.")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """See HELP."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        rows = repeat_rows(
            read_trace(trace, requests) if trace else synthetic_trace(requests, seed, rate_per_s=rate),
            requests,
        )
        shares = dict(_share(entry) for entry in contract or [""])
        served_model = model or _first_model(url, headers)
        client = LoadClient(url, headers=headers)
    except (
        OSError,
        UnicodeDecodeError,
        TraceInvalid,
        ValueError,
        httpx.HTTPError,
        httpx.InvalidURL,
    ) as problem:
        fail(str(problem) or type(problem).__name__, code=exit_codes.USAGE)
    limits = (max_prompt, max_answer, speed)
    jobs = _jobs(rows, shares, limits, ttft_ms=ttft_ms, itl_ms=itl_ms, seed=seed)
    load = Load((text_bodies if text else token_bodies)(served_model, str(seed)), headers=_headers)
    run = asyncio.run(_run(client, jobs, load, progress_on(errors)))
    if records is not None:
        _write_records(records, run.records)
    summary = summarise(run.records, run.duration_s)
    if output is Output.JSON:
        emit_json({"url": url, "model": served_model, **summary})
    else:
        _show(summary)
    answered = any(record.status for record in run.records)
    raise typer.Exit(exit_codes.OK if answered else exit_codes.FAILED)


def _share(entry: str) -> tuple[str, float]:
    name, _, share = entry.partition("=")
    value = float(share or 1)
    if not 0 < value < 1e6:
        raise ValueError(f"--contract {entry}: the share must be a number above 0")
    return name, value


def _first_model(url: str, headers: dict[str, str]) -> str:
    answer = httpx.get(f"{url.rstrip('/')}/v1/models", headers=headers, timeout=10)
    answer.raise_for_status()
    models = answer.json().get("data") or []
    if not models:
        raise ValueError(f"{url} serves no model; name one with --model")
    return str(models[0]["id"])


def _jobs(
    rows: list[TraceRow],
    shares: dict[str, float],
    limits: tuple[int, int, float],
    *,
    ttft_ms: float | None,
    itl_ms: float | None,
    seed: int,
) -> list[Job]:
    max_prompt, max_answer, speed = limits
    drawn = random.Random(seed)
    names, weights = list(shares), list(shares.values())
    rank = Rank(BEST_EFFORT_TIER_RANK)
    return [
        Job(
            request_id=f"bench-{seed}-{number:06d}",
            arrived_ms=(row.arrived_ms - rows[0].arrived_ms) / speed,
            prompt_tokens=max(1, min(max_prompt, row.prompt_tokens)),
            output_tokens=max(1, min(max_answer, row.output_tokens)),
            tier=Tier.BRONZE,  # the server knows its contracts' tiers; this is not sent
            slo=RequestSlo(drawn.choices(names, weights)[0], rank, ttft_ms=ttft_ms, itl_ms=itl_ms),
        )
        for number, row in enumerate(rows)
    ]


def _headers(job: Job) -> dict[str, str]:
    headers = {"x-request-id": job.request_id}
    if job.slo.contract:
        headers["x-slo-contract-id"] = job.slo.contract
    if job.slo.ttft_ms is not None:
        headers["x-slo-ttft-ms"] = f"{job.slo.ttft_ms:.3f}"
    if job.slo.itl_ms is not None:
        headers["x-slo-tpot-ms"] = f"{job.slo.itl_ms:.3f}"
    return headers


async def _run(client: LoadClient, jobs: list[Job], load: Load, progress: Progress) -> Run:
    over = 0

    def told(_record: RequestRecord) -> None:
        nonlocal over
        over += 1
        progress.step(f"load: {over} of {len(jobs)} requests are over")

    async with client:
        try:
            return await open_loop(client, jobs, load, told)
        finally:
            progress.done()


def _write_records(path: Path, records: list[RequestRecord]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record.as_json()) + "\n" for record in records))


def _show(summary: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("contract", "asked", "served", "kept", "refused", "TTFT p50/p99", "ITL p50/p99"):
        table.add_column(heading)
    for name, figures in summary["contracts"].items():
        refused = ", ".join(f"{code} {count}" for code, count in figures["refused"].items()) or "-"
        spreads = [f"{figures[m]['p50']} / {figures[m]['p99']}" for m in ("ttft_ms", "itl_ms")]
        counts = [str(figures[key]) for key in ("asked", "served", "kept")]
        table.add_row(name, *counts, refused, *spreads)
    console.print(table)
    console.print(
        f"{summary['requests']} requests in {summary['duration_s']} s; kept {summary['goodput_rps']}/s,"
        f" {summary['tokens_per_s']} tokens/s"
    )
    console.print("kept: within --ttft-ms and --itl-ms where given; contracts' own books: GET /v1/contracts")
