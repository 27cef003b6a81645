"""`superinfer simulate`: what a policy would keep, on many executors, before anything is bought.

The simulation is deterministic: the same trace, seed and profile give the same figures.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from superinfer.exit_codes import USAGE
from superinfer.numbers import finite
from superinfer.output import Output, OutputOption, console, emit_json, errors, fail
from superinfer.serving.console import Progress, progress_on
from superinfer.simulation.engine import EngineLimits
from superinfer.simulation.fleet import FleetSettings
from superinfer.simulation.parallel import simulate_fleet
from superinfer.simulation.workload import (
    TraceInvalid,
    TraceRow,
    promise,
    read_trace,
    repeat_rows,
    synthetic_trace,
)
from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_core.prediction.step_model import UNPROFILED, StepModel
from superinfer_core.scheduling.policy import Order, PolicyInvalid, SchedulingPolicy
from superinfer_ingress.small_file import read_small_text

HELP = """Simulate executors on a trace, with the decisions the product takes.

\b
Examples:
  superinfer simulate                                      a seeded mix with bursts on one executor
  superinfer simulate --trace azure.csv --load 1.5         one and a half times what one executor can serve
  superinfer simulate --executors 64 --requests 100000     a fleet
  superinfer simulate --policy priority --output json      a baseline, for programs

\b
Exit codes:
  0  simulated
  2  wrong option: no such trace, profile or policy file"""

SAID_EVERY_S = 1.0


class Policy(StrEnum):
    """`--policy`: ours, or a baseline with vLLM's own semantics."""

    SUPERINFER = "superinfer"
    FCFS = "fcfs"
    PRIORITY = "priority"
    EDF = "edf"


def simulate(
    trace: Annotated[
        Path | None,
        typer.Option(
            help="CSV arrived_at,num_prefill_tokens,num_decode_tokens or JSON lines; else a seeded mix."
        ),
    ] = None,
    executors: Annotated[int, typer.Option(min=1, max=4096, help="Engines in the fleet.")] = 1,
    requests: Annotated[int, typer.Option(min=1, max=10_000_000, help="Requests; a trace repeats.")] = 2000,
    profile: Annotated[
        Path | None, typer.Option(help="Profile written by `superinfer profile`: step times and limits.")
    ] = None,
    policy: Annotated[Policy, typer.Option(help="Who is admitted and goes first.")] = Policy.SUPERINFER,
    policy_file: Annotated[
        Path | None, typer.Option(help="YAML with settings of the superinfer policy.")
    ] = None,
    load: Annotated[
        float, typer.Option(callback=finite, min=0.01, max=100.0, help="Offered load, 1 is saturation.")
    ] = 1.0,
    known_lengths: Annotated[
        bool, typer.Option(help="Answers as long as max_tokens; else learned per contract.")
    ] = True,
    noise: Annotated[
        float, typer.Option(callback=finite, min=0.0, max=1.0, help="Relative noise of step times.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of tiers, contracts, noise and the mix.")] = 1,
    processes: Annotated[int, typer.Option(min=1, max=256, help="Processes to spread executors over.")] = 1,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run one simulation and print what was kept."""
    model, limits = _engine(profile)
    chosen = _policy(policy, policy_file)
    rows = _rows(trace, requests, seed)
    began = time.perf_counter()
    unit = _jobs(rows[: min(len(rows), 1500)], model, seed, 1.0)
    capacity = saturation_rps(unit, model, limits)
    span_s = max(1e-9, (rows[-1].arrived_ms - rows[0].arrived_ms) / 1000.0)
    scale = load * capacity * executors / (len(rows) / span_s)
    settings = FleetSettings(
        executors=executors,
        limits=limits,
        truth=model,
        noise=noise,
        admission=policy is Policy.SUPERINFER,
        known_lengths=known_lengths,
        factor=1.0 + 1.5 * noise,
        seed=seed,
    )
    progress = progress_on(errors)
    try:
        told = _arrivals(progress, len(rows))
        result = simulate_fleet(_jobs(rows, model, seed, scale), chosen, settings, processes, told)
    finally:
        progress.done()
    took = time.perf_counter() - began
    result = {
        "policy": policy.value,
        "load": load,
        "executors": executors,
        "requests": len(rows),
        "saturation_rps": capacity * executors,
        "wall_s": round(took, 2),
        **result,
    }
    if output is Output.JSON:
        emit_json(result)
    else:
        _print(result)


def _arrivals(progress: Progress, count: int) -> Callable[[int], None]:
    """Says now and then how far a simulation is that takes longer than somebody waits without a word."""
    said_s = time.monotonic()

    def told(arrived: int) -> None:
        nonlocal said_s
        now_s = time.monotonic()
        if now_s - said_s >= SAID_EVERY_S:
            said_s = now_s
            progress.step(f"simulating: {arrived} of {count} requests have arrived")

    return told


def saturation_rps(jobs: list[Any], model: StepModel, limits: EngineLimits) -> float:
    """Requests per second one engine serves when all arrive at once, first come first served."""
    at_once = [replace(job, arrived_ms=0.0) for job in jobs]
    settings = FleetSettings(limits=limits, truth=model, admission=False)
    run = simulate_fleet(at_once, SchedulingPolicy(order=Order.FCFS), settings, 1)
    return len(at_once) / max(1e-9, float(run["seconds"]))


def _jobs(rows: list[TraceRow], model: StepModel, seed: int, scale: float) -> list[Any]:
    return promise(
        rows,
        seed=seed,
        unloaded_ttft_ms=lambda tokens: model.prefill_ms(tokens, chunk_tokens=2048),
        unloaded_itl_ms=model.step_ms(decode_seqs=1),
        rate_scale=scale,
    )


def _engine(path: Path | None) -> tuple[StepModel, EngineLimits]:
    if path is None:
        return UNPROFILED, EngineLimits()
    try:
        profile = Profile.load_json(read_small_text(path))
    except (OSError, UnicodeDecodeError, ProfileInvalid) as error:
        fail(f"--profile {path}: {error}", fix="Write one with `superinfer profile`.", code=USAGE)
    limits = EngineLimits(profile.max_num_seqs, profile.max_step_tokens, profile.kv_total_tokens or 1_000_000)
    return profile.steps, limits


def _policy(policy: Policy, path: Path | None) -> SchedulingPolicy:
    if policy is not Policy.SUPERINFER:
        if path is not None:
            fail(
                f"--policy-file has settings of the superinfer policy, not of {policy}",
                fix="Leave out one of the two.",
                code=USAGE,
            )
        return SchedulingPolicy(order=Order(policy.value))
    if path is None:
        return SchedulingPolicy()
    try:
        return SchedulingPolicy.from_yaml(read_small_text(path))
    except (OSError, UnicodeDecodeError, PolicyInvalid) as error:
        fail(f"--policy-file {path}: {error}", code=USAGE)


def _rows(trace: Path | None, requests: int, seed: int) -> list[TraceRow]:
    if trace is None:
        return synthetic_trace(requests, seed)
    try:
        return repeat_rows(read_trace(trace, requests), requests)
    except (OSError, UnicodeDecodeError, TraceInvalid) as error:
        fail(f"--trace {trace}: {error}", code=USAGE)


def _print(result: dict[str, Any]) -> None:
    console.print(
        f"{result['policy']}: {result['requests']} requests on {result['executors']} executor(s) at "
        f"{result['load']} x saturation ({result['saturation_rps']:.1f} requests/s)"
    )
    console.print("tier     offered  admitted  kept   of offered  of admitted")
    for tier, t in result["tiers"].items():
        offered, admitted = t["kept"] / max(1, t["offered"]), t["kept"] / max(1, t["admitted"])
        console.print(
            f"{tier:8s} {t['offered']:7d} {t['admitted']:9d} {t['kept']:5d} {offered:11.3f} {admitted:12.4f}"
        )
    console.print(
        f"kept {result['goodput_rps']:.2f} requests/s, {result['tokens_per_s']:.0f} tokens/s, refused "
        f"{result['refused']}, displaced {result['preempted']}, contracts fulfilled "
        f"{result['kept_of_contracts']:.2f}"
    )
    console.print(f"simulated {result['seconds']:.1f} s in {result['wall_s']:.1f} s")
