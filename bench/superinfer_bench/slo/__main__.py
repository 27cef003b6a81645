"""`python -m superinfer_bench.slo`: run the benchmark and write its result file."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from superinfer.serving.models import model_directory
from superinfer.simulation.workload import TraceInvalid
from superinfer_bench.priority import want_nice
from superinfer_bench.slo.bench import SloBench
from superinfer_bench.slo.settings import SloSettings
from superinfer_bench.stack import BenchFailed
from superinfer_core.yaml_text import load_yaml
from superinfer_ingress.small_file import read_small_text

SMOKE_REQUESTS = 40
POLICIES = ("fcfs", "priority", "edf", "superinfer")


def _numbers(text: str) -> tuple[float, ...]:
    values = tuple(float(part) for part in text.split(","))
    if not values or min(values) <= 0:
        raise ValueError(text)
    return values


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(POLICIES):
        raise ValueError(text)
    return names


def parse_settings(argv: Sequence[str], model: Path) -> SloSettings:
    """Settings of a command line; a bad one exits with 2."""
    parser = argparse.ArgumentParser(
        prog="superinfer_bench.slo",
        description="Scheduling policies against each other on one real vLLM engine (about 40 minutes).",
        epilog="example: python -m superinfer_bench.slo --trace azure.csv --loads 1.5 --requests 400",
    )
    add = parser.add_argument
    add("--trace", type=Path, help="CSV or JSON lines; without it a seeded synthetic mix with bursts")
    add("--out", type=Path, default=Path("build/bench/slo.json"))
    add("--requests", type=int, default=600, help="requests of each run (default 600)")
    add("--loads", type=_numbers, default=(0.7, 1.0, 1.5, 2.0), help="shares of saturation")
    add("--policies", type=_names, default=POLICIES, help=f"some of {','.join(POLICIES)}")
    add("--scheduling", type=Path, help="scheduling policy (YAML) for superinfer")
    add("--seed", type=int, default=1)
    add("--no-direct", action="store_true", help="leave out fcfs straight to vllm serve")
    add("--no-gold-alone", action="store_true", help="leave out gold alone on the engine")
    add("--nice", type=int, default=0, help="CPU priority of everything measured, on a busy machine: -10")
    add("--smoke", action="store_true", help="a minute, to see that it works")
    given = parser.parse_args(argv)
    want_nice(given.nice)
    if given.requests < 1:
        parser.error(f"--requests must be at least 1, got {given.requests}")
    if given.trace is not None and not given.trace.is_file():
        parser.error(f"--trace {given.trace} does not exist")
    settings = SloSettings(
        out=given.out,
        model=model,
        trace=given.trace,
        requests=given.requests,
        loads=given.loads,
        policies=given.policies,
        direct=not given.no_direct,
        gold_alone=not given.no_gold_alone,
        seed=given.seed,
        scheduling=load_yaml(read_small_text(given.scheduling)) if given.scheduling else {},
    )
    if given.smoke:
        settings = replace(
            settings,
            requests=min(given.requests, SMOKE_REQUESTS),
            loads=(1.5,),
            policies=("fcfs", "superinfer"),
            direct=False,
            quick=True,
        )
    return settings


def main(argv: Sequence[str]) -> int:
    """0 when the benchmark ran to its end, met aims or not; 1 when it could not."""
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started:6.0f} s] {line}", file=sys.stderr, flush=True)

    settings = parse_settings(argv, Path())
    try:
        settings = replace(settings, model=model_directory("tiny", say))
        uvloop.run(SloBench(settings, say).run())
    except (BenchFailed, TraceInvalid) as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped; the result file has what was measured")
        return 130
    say(f"written: {settings.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
