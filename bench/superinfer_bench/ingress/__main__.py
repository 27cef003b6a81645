"""`python -m superinfer_bench.ingress`: run the benchmark and write its result file."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from superinfer_bench.ingress.bench import STREAMS, IngressBench
from superinfer_bench.ingress.cases import SMOKE, Scale
from superinfer_bench.ingress.peers import PACKAGES
from superinfer_bench.priority import want_nice
from superinfer_bench.stack import BenchFailed


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(PACKAGES):
        raise ValueError(text)
    return names


def main(argv: Sequence[str]) -> int:
    """0 when the benchmark ran to its end, met aims or not; 1 when it could not."""
    parser = argparse.ArgumentParser(
        prog="superinfer_bench.ingress",
        description="Our ingress and sidecar beside litellm's proxy and vllm-router (about 8 minutes).",
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench/ingress.json"))
    parser.add_argument("--smoke", action="store_true", help="less than a minute, to see that it works")
    parser.add_argument("--peers", type=_names, default=tuple(PACKAGES), help="default: vllm-router,litellm")
    parser.add_argument(
        "--nice", type=int, default=0, help="CPU priority of everything, on a busy machine: -10"
    )
    given = parser.parse_args(argv)
    want_nice(given.nice)
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started:6.0f} s] {line}", file=sys.stderr, flush=True)

    bench = IngressBench(
        given.out,
        SMOKE if given.smoke else Scale(),
        say,
        stream_counts=(64,) if given.smoke else STREAMS,
        peers=given.peers,
    )
    try:
        uvloop.run(bench.run())
    except BenchFailed as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped; the result file has what was measured")
        return 130
    say(f"written: {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
