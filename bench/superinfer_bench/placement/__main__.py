"""`python -m superinfer_bench.placement`: run the benchmark and write its result file."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from superinfer_bench.placement.aims import aims
from superinfer_bench.placement.fill import POLICIES, Filled, fill
from superinfer_bench.placement.jobs import Input, TraceUnusable, openb, serving_mix, shared_cluster
from superinfer_bench.placement.scale import Timing, measure
from superinfer_bench.report import document, tell, write

OUT = Path("build/bench/placement.json")


def main(argv: Sequence[str]) -> int:
    """0 when the benchmark ran to its end, met aims or not; 1 when it could not."""
    parser = argparse.ArgumentParser(
        prog="superinfer_bench.placement",
        description="How fast placement plans, and how full it gets a cluster beside other policies.",
        epilog="example: python -m superinfer_bench.placement --trace openb/ --policies superinfer,fgd",
    )
    add = parser.add_argument
    add("--trace", type=Path, help="directory with openb_node_list*.csv and openb_pod_list*.csv")
    add("--out", type=Path, default=OUT)
    add("--nodes", type=int, default=10_000, help="nodes of the timed cluster (default 10000)")
    add("--changes", type=int, default=1000, help="changes timed (default 1000)")
    add("--fill-nodes", type=int, default=250, help="nodes of the filled clusters (default 250)")
    add("--seeds", type=int, default=3, help="seeds of each seeded input (default 3)")
    add("--policies", type=lambda text: text.split(","), default=list(POLICIES))
    add("--skip-scale", action="store_true", help="only fill")
    add("--smoke", action="store_true", help="seconds, to see that it works")
    given = parser.parse_args(argv)
    unknown = set(given.policies) - set(POLICIES)
    if unknown:
        parser.error(f"--policies: unknown {', '.join(sorted(unknown))}; there are {', '.join(POLICIES)}")
    if given.smoke:
        given.nodes, given.changes, given.fill_nodes, given.seeds = 200, 100, 20, 1
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started:6.0f} s] {line}", file=sys.stderr, flush=True)

    try:
        inputs = _inputs(given.trace, given.fill_nodes, given.seeds)
    except (TraceUnusable, OSError) as problem:
        say(f"failed: {problem}")
        return 1
    load = os.getloadavg()[0]
    timing = None if given.skip_scale else measure(given.nodes, given.changes, 1, say)
    _write(given.out, timing, [], load)
    filled = _fill(given.out, inputs, given.policies, timing, load, say)
    tell(aims(timing, filled), say)
    say(f"written: {given.out}")
    return 0


def _inputs(trace: Path | None, nodes: int, seeds: int) -> list[tuple[Input, int]]:
    if trace is not None:
        return [(one, 1) for one in openb(trace)]
    return [
        (make(nodes, seed), seed) for seed in range(1, seeds + 1) for make in (serving_mix, shared_cluster)
    ]


def _fill(
    out: Path,
    inputs: Sequence[tuple[Input, int]],
    policies: Sequence[str],
    timing: Timing | None,
    load: float,
    say: Callable[[str], None],
) -> list[Filled]:
    filled: list[Filled] = []
    for given, seed in inputs:
        for policy in policies:
            one = fill(given, policy, seed)
            filled.append(one)
            say(
                f"{one.input} {one.policy}: {one.allocated_gpu_ratio:.2%} allocated, {one.refused} refused, "
                f"{one.fragmentation:.0%} of the rest fragments; {one.allocated_when_full:.2%} when full"
            )
            _write(out, timing, filled, load)
    return filled


def _write(out: Path, timing: Timing | None, filled: Sequence[Filled], load: float) -> None:
    rest = {} if timing is None else timing.as_json()
    rest |= {"load_average_before": round(load, 2), "fill": [one.as_json() for one in filled]}
    write(out, document(aims(timing, filled), rest))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
