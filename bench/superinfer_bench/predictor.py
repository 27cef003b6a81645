"""`python -m superinfer_bench.predictor`: how right predictions are on a real engine, and what one costs.

One vLLM engine on the tiny random-weight model, requests of the trace sent in bursts of one to sixteen. The
online model learns from the steps of the first half; on the second half every request is predicted with the
product's own function before it is sent, and compared with what it took.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from superinfer.profiling.engine import Measured, MeasuredEngine, Work
from superinfer.serving.models import model_directory
from superinfer.simulation.workload import TraceInvalid, TraceRow, read_trace, synthetic_trace
from superinfer_bench.report import Aim, document, tell, write
from superinfer_bench.stack import BenchFailed, EngineCommand, engine_alone
from superinfer_core.prediction.online import OnlineStepModel
from superinfer_core.prediction.step_model import UNPROFILED
from superinfer_core.scheduling.admission import predict
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.policy import Order, SchedulingPolicy
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.slo import Rank, RequestSlo

MAX_SEQS, STEP_TOKENS, MAX_LEN = 32, 2048, 4096
FCFS = SchedulingPolicy(order=Order.FCFS, step_budget=False)
QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of one request: predicted as expected, at the quantile, and measured."""

    expected: float
    at_quantile: float
    measured: float


def states_of(rows: Sequence[TraceRow]) -> list[RequestState]:
    """The burst as decisions see it the moment it arrives."""
    slo = RequestSlo("bench/predictor", Rank(0), quantile=QUANTILE)
    return [
        RequestState(f"{i:04d}", slo, 0.0, Phase.WAITING, r.prompt_tokens, 0, 0, r.output_tokens)
        for i, r in enumerate(rows)
    ]


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _context(online: OnlineStepModel, quantile: float) -> DecisionContext:
    factor = online.factor(quantile)
    return DecisionContext(online.model, FCFS, factor=lambda _quantile: factor)


def compare(
    rows: Sequence[TraceRow], measured: Measured, online: OnlineStepModel
) -> tuple[list[Compared], list[Compared]]:
    """(TTFT, ITL) of every request of a burst, predicted by what was known before it."""
    states = states_of(rows)
    expected, at_quantile = _context(online, 0.5), _context(online, QUANTILE)
    ttft, itl = [], []
    for i, r in enumerate(states):
        others = EngineState(MAX_SEQS, STEP_TOKENS, 1_000_000, (*states[:i], *states[i + 1 :]))
        mid, high = predict(r, others, 0.0, expected), predict(r, others, 0.0, at_quantile)
        ttft.append(Compared(mid.ttft_ms, high.ttft_ms, measured.ttft_ms[i]))
        if rows[i].output_tokens > 1:
            took = (measured.end_ms[i] - measured.ttft_ms[i]) / (rows[i].output_tokens - 1)
            itl.append(Compared(mid.itl_ms, high.itl_ms, took))
    return ttft, itl


def figures(of: Sequence[Compared]) -> dict[str, float]:
    """Error and calibration."""
    return {
        "mape": round(mean(abs(c.expected - c.measured) / c.measured for c in of), 4),
        "p90_coverage": round(mean(c.measured <= c.at_quantile for c in of), 4),
    }


def predict_us(online: OnlineStepModel) -> float:
    """CPU microseconds of one prediction beside 32 requests."""
    states = states_of([TraceRow(0.0, 500 + 10 * i, 100) for i in range(33)])
    ctx, engine = (
        DecisionContext(online.model, FCFS),
        EngineState(MAX_SEQS, STEP_TOKENS, 1_000_000, tuple(states[1:])),
    )
    began = time.process_time()
    for _ in range(500):
        predict(states[0], engine, 0.0, ctx)
    return round((time.process_time() - began) / 500 * 1e6, 1)


async def measure(rows: Sequence[TraceRow], seed: int) -> dict[str, object]:
    """Run the engine and compare."""
    rnd = random.Random(seed)
    online = OnlineStepModel(UNPROFILED)
    ttft: list[Compared] = []
    itl: list[Compared] = []
    with tempfile.TemporaryDirectory(prefix="si-predictor-") as run_dir:
        # Our scheduler in vLLM's order: only it reports what its steps did.
        policy = Path(run_dir) / "policy.yaml"
        policy.write_text("{order: fcfs, step_budget: false}\n", encoding="utf-8")
        command = EngineCommand(
            "serve",
            (
                "--model",
                str(model_directory("tiny", _progress)),
                "--served-model-name",
                "tiny",
                "--scheduler",
                "fcfs",
            ),
            (
                "--max-num-seqs",
                str(MAX_SEQS),
                "--max-num-batched-tokens",
                str(STEP_TOKENS),
                "--max-model-len",
                str(MAX_LEN),
            ),
        )
        async with engine_alone(command, Path(run_dir)) as socket, MeasuredEngine(socket) as engine:
            at = 0
            while at < len(rows):
                burst = rows[at : at + rnd.randint(1, 16)]
                at += len(burst)
                work = [
                    Work(tuple(rnd.randrange(10, 1000) for _ in range(r.prompt_tokens)), r.output_tokens)
                    for r in burst
                ]
                measured = await engine.run(work)
                if at > len(rows) // 2:
                    pair = compare(burst, measured, online)
                    ttft += pair[0]
                    itl += pair[1]
                for facts in measured.facts:
                    online.observe(facts)
    return {
        "ttft": figures(ttft),
        "itl": figures(itl),
        "predict_us": predict_us(online),
        "requests": len(ttft),
    }


def main(argv: Sequence[str]) -> int:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(
        prog="superinfer_bench.predictor", description="Prediction error on a real engine."
    )
    parser.add_argument("--trace", type=Path, help="CSV or JSON lines; without it a seeded synthetic mix")
    parser.add_argument("--out", type=Path, default=Path("build/bench/predictor.json"))
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="a minute, to see that it works")
    given = parser.parse_args(argv)
    count = 60 if given.smoke else max(20, given.requests)
    try:
        read = read_trace(given.trace, count) if given.trace else synthetic_trace(count, given.seed)
        rows = [
            TraceRow(r.arrived_ms, min(3000, max(1, r.prompt_tokens)), min(300, max(2, r.output_tokens)))
            for r in read
        ]
        result = asyncio.run(measure(rows, given.seed))
    except (BenchFailed, TraceInvalid, OSError) as error:
        print(f"superinfer_bench.predictor: {error}", file=sys.stderr)
        return 1
    parts = {name: result[name] for name in ("ttft", "itl")}
    aims = [Aim.at_most(f"{n} error (MAPE)", 0.2, f["mape"]) for n, f in parts.items()]  # type: ignore[index]
    aims += [Aim.at_least(f"{n} P90 coverage", 0.85, f["p90_coverage"]) for n, f in parts.items()]  # type: ignore[index]
    aims.append(Aim.at_most("time of a prediction", 300.0, result["predict_us"], " us"))  # type: ignore[arg-type]
    write(given.out, document(aims, result))
    tell(aims, print)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
