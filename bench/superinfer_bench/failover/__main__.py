"""`python -m superinfer_bench.failover`: what a dead executor costs its requests, by method and context."""

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from superinfer.paths import models_dir
from superinfer.serving.backoff import Backoff
from superinfer_bench.chaos.client import many_connections
from superinfer_bench.chaos.site import SiteOptions, running_site
from superinfer_bench.failover.trial import Method, Trial, run_trial, warm_up
from superinfer_bench.report import Aim, document, tell, write
from superinfer_bench.stack import BenchFailed

CONTEXTS: Final = (256, 1024, 2048, 4096)
AIM_CONTEXT: Final = 2048
AIM_SHARE: Final = 0.03
FLAT: Final = 3.0
DETECTED_MS: Final = 100.0
RESTART_S: Final = 3.0
VLLM_ARGUMENTS: Final = (
    *("--dtype", "float32", "--max-model-len", "4352", "--max-num-seqs", "4", "--block-size", "32"),
)


async def run(
    model: Path, contexts: Sequence[int], wanted: Sequence[Method], seed: int, out: Path
) -> list[Trial]:
    """Every method wanted at every context; the file is written after each."""
    rng = random.Random(seed)
    trials: list[Trial] = []
    for kinds, checkpoints in (((Method.CHECKPOINT,), True), ((Method.REPLAY, Method.RESTART), False)):
        methods = [method for method in kinds if method in wanted]
        if not methods:
            continue
        options = SiteOptions(
            model,
            2,
            checkpoints=checkpoints,
            memory_mib=512,
            vllm_arguments=VLLM_ARGUMENTS,
            backoff=Backoff(first_s=RESTART_S, most_s=RESTART_S, healthy_s=1.0),
        )
        async with running_site(options) as site, many_connections() as client:
            await warm_up(site, client, rng)
            for context in contexts:
                for method in methods:
                    trial = await run_trial(site, client, context, method, rng)
                    trials.append(trial)
                    _say(str(trial.as_json()))
                    _write(out, model, trials)
    return trials


def aims(trials: Sequence[Trial]) -> list[Aim]:
    """What it should be."""
    by = {(trial.method, trial.context): trial for trial in trials}
    ours, replayed = (by.get((method, AIM_CONTEXT)) for method in (Method.CHECKPOINT, Method.REPLAY))
    share = None if ours is None or replayed is None else ours.next_token_ms / replayed.next_token_ms
    restored = [trial.next_token_ms for trial in trials if trial.method is Method.CHECKPOINT]
    heard = [trial.detection_ms for trial in trials if trial.detection_ms is not None]
    return [
        Aim.at_most(f"checkpoint / replay at {AIM_CONTEXT} tokens", AIM_SHARE, share),
        Aim.at_most(
            "checkpoint, slowest / quickest context",
            FLAT,
            max(restored) / min(restored) if restored else None,
        ),
        Aim.at_most("slowest detection", DETECTED_MS, max(heard, default=None), " ms"),
        Aim.at_most("answers that differ", 0, sum(not trial.exact for trial in trials)),
    ]


def _write(out: Path, model: Path, trials: Sequence[Trial]) -> None:
    setting = {"model": model.name, "restart": f"engines after the request, sidecars after {RESTART_S:g} s"}
    write(out, document(aims(trials), {**setting, "runs": [trial.as_json() for trial in trials]}))


def main() -> int:
    """Exit code: 0 where every aim is met."""
    parser = argparse.ArgumentParser(prog="superinfer_bench.failover", description=__doc__)
    parser.add_argument("--model", type=Path, default=models_dir() / "smollm2")
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--methods", type=Method, nargs="+", choices=list(Method), default=list(Method))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/bench/failover.json"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended like by Ctrl-C: nothing is left behind
    try:
        trials = asyncio.run(run(given.model, given.contexts, given.methods, given.seed, given.out))
    except BenchFailed as error:
        sys.stderr.write(f"failover: {error}\n")
        return 1
    found = aims(trials)
    tell(found, _say)
    _say(f"written to {given.out}")
    return 0 if all(aim.met for aim in found) else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
