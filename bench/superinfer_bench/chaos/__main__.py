"""`python -m superinfer_bench.chaos`: kill processes under load; the report says what clients noticed."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from superinfer.paths import models_dir
from superinfer_bench.chaos.bench import ChaosOptions, run
from superinfer_bench.report import document, tell, write
from superinfer_bench.stack import BenchFailed


def main() -> int:
    """Exit code: 0 where every aim is met."""
    parser = argparse.ArgumentParser(prog="superinfer_bench.chaos", description=__doc__)
    parser.add_argument("--model", type=Path, default=models_dir() / "tiny")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--executors", type=int, default=3)
    parser.add_argument("--most-minutes", type=float, default=120.0, help="of killing")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-checkpoints", action="store_true", help="resume by recomputing")
    parser.add_argument("--out", type=Path, default=Path("build/chaos/report.json"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended like by Ctrl-C: nothing is left behind
    options = ChaosOptions(
        given.model,
        kills=given.kills,
        clients=given.clients,
        executors=given.executors,
        seed=given.seed,
        most_minutes=given.most_minutes,
        checkpoints=not given.no_checkpoints,
    )
    try:
        result = asyncio.run(run(options, _say))
    except BenchFailed as error:
        sys.stderr.write(f"chaos: {error}\n")
        return 1
    aims = result.aims(given.kills)
    write(given.out, document(aims, result.as_json()))
    tell(aims, _say)
    _say(f"written to {given.out}")
    return 0 if all(aim.met for aim in aims) else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
