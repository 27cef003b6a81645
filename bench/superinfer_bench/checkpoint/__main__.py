"""`python -m superinfer_bench.checkpoint`: tokens/s, token gaps and memory, off, local and replicated.

Two engines of the same model, one without checkpoints and one with them, measured in turns within one run:
off, local (saved to shared memory, followed by the sidecar), replicated (and copied to a peer's sidecar).
Rounds are short, and compared in pairs (see pairs.py), by time and by the CPU time of every process that took
part, which other work on the machine moves less. Then one long context on the tiny model, for what an
increment is there. Beside all that stands the engine's own account of the time it spent on saving.
"""

import argparse
import asyncio
import contextlib
import math
import random
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from superinfer.percentiles import nearest_rank
from superinfer.serving.models import model_directory
from superinfer_bench.checkpoint.load import Burst, Client
from superinfer_bench.checkpoint.pairs import CONFIDENCE, Loss, loss_of
from superinfer_bench.checkpoint.site import (
    EngineShape,
    Node,
    Saved,
    cpu_s,
    node,
    shared_folder,
    sidecar,
    wait_for,
)
from superinfer_bench.children import Child
from superinfer_bench.priority import apply_nice, want_nice
from superinfer_bench.report import Aim, document, tell, write
from superinfer_bench.stack import BenchFailed
from superinfer_proto.slab import ENGINE_SLAB, Slab

MODES: Final = ("off", "local", "replicated")
MOST_LOSS_PERCENT: Final = 3.0
MOST_INCREMENT_BYTES: Final = 2e6
MOST_SAVE_MS: Final = 8.0


@dataclass(slots=True)
class Collected:
    """All bursts of one mode."""

    bursts: list[Burst] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    rss_mb: dict[str, float] = field(default_factory=dict)

    def run(self, mode: str) -> dict[str, Any]:
        """One row of the result."""
        gaps = [gap for burst in self.bursts for gap in burst.gaps_ms]
        seconds = sum(burst.seconds for burst in self.bursts)
        blocks, spent_ns = sum(s.blocks for s in self.saved), sum(s.save_ns for s in self.saved)
        tokens = sum(burst.tokens + burst.prompt_tokens for burst in self.bursts)
        block_bytes = self.saved[0].block_bytes if self.saved else 0
        return {
            "mode": mode,
            "tokens_per_s": round(median(burst.tokens_per_s for burst in self.bursts), 3),
            "tokens_per_s_of_rounds": [round(burst.tokens_per_s, 3) for burst in self.bursts],
            "cpu_ms_per_token": round(1000 * sum(self.cpu_s) / tokens, 3),
            "itl_p50_ms": round(nearest_rank(gaps, 0.5, otherwise=math.nan), 2),
            "itl_p99_ms": round(nearest_rank(gaps, 0.99, otherwise=math.nan), 2),
            "bytes_per_token": round(block_bytes * blocks / tokens, 1),
            "saved_blocks": blocks,
            "block_bytes": block_bytes,
            "save_ms_per_block": round(spent_ns / 1e6 / blocks, 3) if blocks else 0.0,
            "save_share_percent": round(100 * spent_ns / 1e9 / seconds, 3),
            "rss_mb": self.rss_mb["engine"],
            "sidecar_rss_mb": self.rss_mb["sidecar"],
        }


class Prompts:
    """Prompts that no cache has seen."""

    def __init__(self, vocabulary: int) -> None:
        self._chance = random.Random(17)
        self._vocabulary = vocabulary

    def some(self, count: int, tokens: int) -> list[list[int]]:
        """So many of so many tokens."""
        return [[self._chance.randrange(10, self._vocabulary) for _ in range(tokens)] for _ in range(count)]


async def _alternate(args: argparse.Namespace, run_dir: Path) -> dict[str, Collected]:
    """Rounds of every mode in turns; each round begins with another mode."""
    shape = EngineShape(
        model=model_directory(args.model, _say),
        name=args.model,
        block_tokens=args.block_tokens,
        max_model_len=args.prompt_tokens + args.output_tokens + 64,
        max_num_seqs=args.requests,
        step_tokens=512,
        memory_mib=args.memory_mib,
    )
    collected: dict[str, Collected] = defaultdict(Collected)
    prompts = Prompts(900 if args.model == "tiny" else 40_000)
    async with (
        _pair(shape, run_dir) as (off, on, peer),
        off.client() as without,
        on.client() as with_them,
    ):
        clients = {"off": without, "local": with_them, "replicated": with_them}
        for client in (without, with_them):  # first bursts pay for lazy imports
            await client.burst(prompts.some(args.requests, 64), 8)
        for number in range(args.rounds):
            for mode in (*MODES[number % 3 :], *MODES[: number % 3]):
                if mode != "off":
                    await with_them.peers(
                        **({"peer": f"unix:{run_dir}/peer/sidecar.sock"} if mode == "replicated" else {})
                    )
                place = off if mode == "off" else on
                beside = (peer,) if mode == "replicated" else ()
                await _round(args, clients[mode], place, prompts, collected[mode], beside)
                speed = collected[mode].bursts[-1].tokens_per_s
                _say(f"round {number + 1}/{args.rounds} {mode}: {speed:.1f} tokens/s")
    return collected


async def _round(
    args: argparse.Namespace,
    client: Client,
    place: Node,
    prompts: Prompts,
    into: Collected,
    beside: Sequence[Child],
) -> None:
    slab = place.slab() if place.shared is not None else None
    before = Saved.of(slab) if slab is not None else None
    taking_part = (place.engine, place.sidecar, *beside)
    spent_s = cpu_s(taking_part)
    into.bursts.append(
        await client.burst(prompts.some(args.requests, args.prompt_tokens), args.output_tokens)
    )
    into.cpu_s.append(cpu_s(taking_part) - spent_s)
    if slab is not None and before is not None:
        into.saved.append(Saved.of(slab).since(before))
        slab.close()
    into.rss_mb = place.rss_mb()
    place.check()


@contextlib.asynccontextmanager
async def _pair(shape: EngineShape, run_dir: Path) -> AsyncIterator[tuple[Node, Node, Child]]:
    """An engine without checkpoints, one with them, and a peer's sidecar."""
    with shared_folder(f"{run_dir.name}-on") as shared, shared_folder(f"{run_dir.name}-peer") as peers:
        async with (
            node("off", shape, run_dir / "off", None) as off,
            node("on", shape, run_dir / "on", shared) as on,
        ):
            await wait_for([off, on])
            layout = Slab.open(shared / ENGINE_SLAB)
            Slab.create(peers / ENGINE_SLAB, layout.shape, generation=1).close()
            layout.close()
            with sidecar("peer", run_dir / "peer", peers, shape.memory_mib) as peer:
                for child in (off.engine, on.engine, off.sidecar, on.sidecar, peer):
                    apply_nice(child.pid)
                yield off, on, peer
                peer.check()


async def _long_context(args: argparse.Namespace, run_dir: Path) -> dict[str, Any]:
    """What a decode step's increment is at the end of a long context."""
    shape = EngineShape(
        model=model_directory("tiny", _say),
        name="tiny",
        block_tokens=args.block_tokens,
        max_model_len=args.long_context + 512,
        max_num_seqs=2,
        step_tokens=2048,
        memory_mib=256,
    )
    with shared_folder(f"{run_dir.name}-long") as shared:
        async with node("long", shape, run_dir / "long", shared) as place:
            await wait_for([place])
            async with place.client() as client:
                (prompt,) = Prompts(900).some(1, args.long_context)
                await client.burst([prompt], 1)
                slab = place.slab()
                before = Saved.of(slab)
                await client.burst([prompt], 10 * args.block_tokens)
                saved = Saved.of(slab).since(before)
                slab.close()
    return _increment("tiny", args.long_context, args.block_tokens, saved)


def _increment(model: str, context: int, block_tokens: int, saved: Saved) -> dict[str, Any]:
    return {
        "model": model,
        "dtype": "float32",
        "context": context,
        "block_tokens": block_tokens,
        "bytes": saved.block_bytes,
        "save_ms": round(saved.save_ns / 1e6 / max(1, saved.blocks), 3),
    }


def _losses(collected: dict[str, Collected]) -> dict[tuple[str, str], Loss]:
    """Of every mode, against the rounds without that stood beside it."""
    losses = {}
    off = collected["off"]
    for mode in MODES[1:]:
        on = collected[mode]
        losses["time", mode] = loss_of(
            [1 / burst.tokens_per_s for burst in on.bursts], [1 / burst.tokens_per_s for burst in off.bursts]
        )
        losses["CPU time", mode] = loss_of(on.cpu_s, off.cpu_s)
    return losses


def _aims(
    losses: dict[tuple[str, str], Loss], runs: Sequence[dict[str, Any]], increments: Sequence[dict[str, Any]]
) -> list[Aim]:
    aims = [
        loss.aim(f"{measure} per token, {mode}", MOST_LOSS_PERCENT)
        for (measure, mode), loss in losses.items()
    ]
    for run in runs:
        if run["mode"] != "off":
            name = f"time spent on saving, {run['mode']}"
            aims.append(Aim.at_most(name, MOST_LOSS_PERCENT, run["save_share_percent"], " %"))
    for row in increments:
        where = f"{row['model']} {row['dtype']} at {row['context']}"
        aims.append(Aim.at_most(f"increment, {where}", MOST_INCREMENT_BYTES / 1e6, row["bytes"] / 1e6, " MB"))
        aims.append(Aim.at_most(f"increment saved, {where}", MOST_SAVE_MS, row["save_ms"], " ms"))
    return aims


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def _run(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="superinfer-bench-") as folder:
        run_dir = Path(folder)
        collected = await _alternate(args, run_dir)
        runs = [collected[mode].run(mode) for mode in MODES]
        context = args.prompt_tokens + args.output_tokens
        saved = collected["local"].saved
        whole = Saved(sum(s.blocks for s in saved), sum(s.save_ns for s in saved), saved[0].block_bytes)
        increments = [_increment(args.model, context, args.block_tokens, whole)]
        if args.long_context:
            increments.append(await _long_context(args, run_dir))
    losses = _losses(collected)
    aims = _aims(losses, runs, increments)
    setting = {
        "model": args.model,
        "dtype": "float32",
        "requests": args.requests,
        "prompt_tokens": args.prompt_tokens,
        "output_tokens": args.output_tokens,
        "rounds": args.rounds,
        "confidence": CONFIDENCE,
    }
    lost = {f"{measure}, {mode}": loss.as_json() for (measure, mode), loss in losses.items()}
    found = {"setting": setting, "runs": runs, "loss": lost, "increments": increments}
    write(args.out, document(aims, found))
    tell(aims, _say)
    return 0


def main(argv: Sequence[str]) -> int:
    """Measure and write; 0 when everything was measured, whatever the aims say."""
    parser = argparse.ArgumentParser(prog="superinfer_bench.checkpoint", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--out", type=Path, required=True)
    add("--model", choices=("smollm2", "tiny"), default="smollm2")
    add("--rounds", type=int, default=12, help="of every mode; six at least for a verdict")
    add("--requests", type=int, default=4, help="at once")
    add("--prompt-tokens", type=int, default=96)
    add("--output-tokens", type=int, default=48)
    add("--block-tokens", type=int, default=32)
    add("--memory-mib", type=int, default=768)
    add("--long-context", type=int, default=8192, help="on the tiny model; 0 for none")
    add("--nice", type=int, default=0, help="priority of everything measured")
    args = parser.parse_args(argv)
    want_nice(args.nice)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started and taken is given back
    try:
        return asyncio.run(_run(args))
    except BenchFailed as failure:
        _say(f"checkpoint benchmark: {failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
