"""The benchmark itself: calibrate, then every contender at every load, one engine at a time.

Promise: the result file is rewritten after every run, so a stopped benchmark leaves what it has.
Contenders get the same requests at the same times with the same promises; prompts are random and differ
between runs, so no run profits from another's prefix cache. Concurrency: one asyncio loop, which is also
the load client.
"""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from superinfer.load.bodies import token_bodies
from superinfer.load.client import LoadClient
from superinfer.load.record import RequestRecord
from superinfer.load.run import Load, Run, open_loop
from superinfer.profiling.measure import measure
from superinfer.simulation.engine import EngineLimits
from superinfer.simulation.workload import Job, TraceRow, promise, read_trace, repeat_rows, synthetic_trace
from superinfer_bench.report import document, tell, write
from superinfer_bench.slo.aims import aims
from superinfer_bench.slo.calibrate import Unloaded, measure_saturation, measure_unloaded
from superinfer_bench.slo.contracts import write_contracts
from superinfer_bench.slo.direct import stock_vllm
from superinfer_bench.slo.outcome import Measured
from superinfer_bench.slo.settings import (
    CONTRACTS_PER_TIER,
    MODEL_NAME,
    PolicySetup,
    SloSettings,
    policy_setups,
)
from superinfer_bench.slo.whatif import Replay, wrongly_refused
from superinfer_bench.stack import EngineCommand, Stack, engine_alone, serving
from superinfer_core.prediction.profile import Profile
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.slo import Tier

Say = Callable[[str], None]
TELL_EVERY_S = 10.0
CONNECTIONS = 64


class SloBench:
    """One benchmark; `run` once."""

    def __init__(self, settings: SloSettings, say: Say) -> None:
        self._settings = settings
        self._say = say
        self._rows = rows_of(settings)
        self._runs: list[dict[str, Any]] = []
        self._measured: list[Measured] = []
        self._gold_alone: list[dict[str, Any]] = []
        self._profile: Profile | None = None
        self._unloaded = Unloaded((), (), (1.0, 0.0, 0.0), 1.0)
        self._saturation_rps = 0.0
        self._saturation_tokens_per_s = 0.0
        self._directory = Path()

    async def run(self) -> dict[str, Any]:
        """Everything; the document that was written."""
        settings = self._settings
        setups = policy_setups(settings)
        with tempfile.TemporaryDirectory(prefix="superinfer-bench-") as directory:
            self._directory = Path(directory)
            write_contracts(self._directory / "contracts")
            if not settings.quick:
                await self._measure_profile()
            async with self._stack(setups["fcfs"]) as stack, _client(stack.url) as client:
                await self._calibrate(client)
                if "fcfs" in settings.policies:
                    await self._loads(setups["fcfs"], stack, client)
                if settings.gold_alone:
                    await self._gold(client)
            for name in settings.policies:
                if name != "fcfs":
                    async with self._stack(setups[name]) as stack, _client(stack.url) as client:
                        await self._loads(setups[name], stack, client)
            if settings.direct:
                await self._direct()
        result = self._write()
        tell(self._aims(), self._say)
        return result

    async def _measure_profile(self) -> None:
        """The profile our predictor starts from: step times of the idle engine."""
        settings = self._settings
        arguments = ("--model", str(settings.model), "--served-model-name", MODEL_NAME)
        engine = EngineCommand("serve", (*arguments, "--scheduler", "superinfer"), settings.vllm_arguments)
        self._say("starting an engine to profile")
        async with engine_alone(engine, self._directory / "profiling") as socket:
            measured = await measure(socket, self._say, longest_prompt=4096, repeats=3)
        self._profile = measured.profile
        self._profile_path().write_text(measured.profile.dump_json(), encoding="utf-8")

    def _profile_path(self) -> Path:
        return self._directory / "profile.json"

    @contextlib.asynccontextmanager
    async def _stack(self, setup: PolicySetup) -> AsyncIterator[Stack]:
        self._say(f"{setup.name}: starting engine, sidecar and ingress")
        policy_file = None
        if setup.scheduling:
            policy_file = self._directory / f"{setup.name}-policy.yaml"
            policy_file.write_text(yaml.safe_dump(dict(setup.scheduling)), encoding="utf-8")
        options = setup.stack(
            self._settings,
            profile=self._profile_path() if self._profile is not None else None,
            policy_file=policy_file,
            contracts=self._directory / "contracts",
        )
        async with serving(options, self._directory / setup.name) as stack:
            try:
                yield stack
                stack.check()
            finally:
                await asyncio.to_thread(_keep_log, stack.request_log, self._settings.records_dir, setup.name)

    async def _calibrate(self, client: LoadClient) -> None:
        self._unloaded = await measure_unloaded(client, self._settings, self._say)
        jobs = self._jobs(1.0, rate_rps=1.0)
        run = await measure_saturation(client, jobs, self._teller("saturation", len(jobs)))
        self._saturation_rps = len(jobs) / run.duration_s
        self._saturation_tokens_per_s = sum(r.tokens for r in run.records) / run.duration_s
        self._say(
            f"saturation: {self._saturation_rps:.2f} requests/s, {self._saturation_tokens_per_s:.0f}"
            f" tokens/s; unloaded {self._unloaded.itl_ms:.2f} ms a token"
        )

    def _jobs(self, load: float, *, rate_rps: float | None = None) -> list[Job]:
        rows = self._rows
        span_s = max(1e-3, (rows[-1].arrived_ms - rows[0].arrived_ms) / 1000)
        wanted = rate_rps or load * self._saturation_rps
        return promise(
            rows,
            seed=self._settings.seed,
            unloaded_ttft_ms=self._unloaded.ttft,
            unloaded_itl_ms=self._unloaded.itl_ms,
            contracts_per_tier=CONTRACTS_PER_TIER,
            max_prompt_tokens=self._settings.max_prompt_tokens,
            rate_scale=wanted / (len(rows) / span_s),
        )

    async def _loads(self, setup: PolicySetup, stack: Stack, client: LoadClient) -> None:
        for load in self._settings.loads:
            measured = await self._one(setup.name, load, client)
            await _add_server_side(measured.run.records, stack.request_log)
            self._keep(measured, setup, self._jobs(load))
            stack.check()

    async def _one(self, name: str, load: float, client: LoadClient, via: str = "ingress") -> Measured:
        jobs = self._jobs(load)
        body = token_bodies(MODEL_NAME, f"{name}/{via}/{load}")
        before = time.process_time()
        run = await open_loop(client, jobs, Load(body), self._teller(f"{name} at {load:g}x", len(jobs)))
        return Measured(name, load, run, via, client_cpu_s=time.process_time() - before)

    async def _gold(self, client: LoadClient) -> None:
        """Gold alone on the engine (vLLM's own scheduling): what nobody else's work takes away."""
        for load in self._settings.loads:
            jobs = [job for job in self._jobs(load) if job.tier is Tier.GOLD]
            if not jobs:
                continue
            body = token_bodies(MODEL_NAME, f"gold-alone/{load}")
            run = await open_loop(
                client, jobs, Load(body), self._teller(f"gold alone at {load:g}x", len(jobs))
            )
            kept = sum(r.kept for r in run.records)
            self._gold_alone.append(
                {
                    "load": load,
                    "offered": len(jobs),
                    "kept": kept,
                    "kept_of_offered": round(kept / len(jobs), 4),
                }
            )
            self._write()

    async def _direct(self) -> None:
        """Once more fcfs, straight to a stock `vllm serve`: what our path costs the baseline."""
        self._say("fcfs direct: starting vllm serve")
        async with stock_vllm(self._settings, self._directory / "direct") as url, _client(url) as client:
            for load in self._settings.loads:
                measured = await self._one("fcfs", load, client, via="direct")
                self._keep(measured, None, self._jobs(load))

    def _keep(self, measured: Measured, setup: PolicySetup | None, jobs: Sequence[Job]) -> None:
        _write_records(self._settings.records_dir, measured)
        wrongly: dict[str, Any] = {"wrongly_refused": 0}
        if setup is not None and setup.admission:
            wrongly = self._wrongly_refused(setup, measured.run, jobs)
        entry = measured.as_json(wrongly)
        self._runs.append(entry)
        if measured.via == "ingress":
            self._measured.append(measured)
        self._write()
        tiers = ", ".join(
            f"{tier} {t['kept']}/{t['admitted']}/{t['offered']}" for tier, t in entry["tiers"].items()
        )
        self._say(
            f"{measured.policy} ({measured.via}) at {measured.load:g}x: goodput {entry['goodput_rps']:.2f}/s,"
            f" {entry['tokens_per_s']:.0f} tokens/s, kept/admitted/offered: {tiers};"
            f" contracts kept {entry['kept_of_contracts']:.2f}; wrongly refused {entry['wrongly_refused']}"
        )

    def _wrongly_refused(self, setup: PolicySetup, run: Run, jobs: Sequence[Job]) -> dict[str, Any]:
        if self._profile is None:
            return {"wrongly_refused": None}
        profile = self._profile
        limits = EngineLimits(
            self._settings.max_num_seqs, self._settings.max_step_tokens, profile.kv_total_tokens or 1_000_000
        )
        replay = Replay(limits, profile.steps, SchedulingPolicy.from_mapping(setup.scheduling))
        return wrongly_refused(jobs, run.records, replay, at_most=self._settings.refused_checked)

    def _aims(self) -> list[Any]:
        return aims(self._measured, {g["load"]: g["kept_of_offered"] for g in self._gold_alone})

    def _write(self) -> dict[str, Any]:
        settings = self._settings
        result = document(
            self._aims(),
            {
                "load_average": [round(value, 2) for value in os.getloadavg()],
                "trace": settings.trace.name
                if settings.trace is not None
                else f"synthetic, seed {settings.seed}",
                "requests": len(self._rows),
                "engine": {
                    "max_num_seqs": settings.max_num_seqs,
                    "max_num_batched_tokens": settings.max_step_tokens,
                    "model": "tiny random-weight Llama",
                },
                "saturation": {
                    "requests_per_s": round(self._saturation_rps, 4),
                    "tokens_per_s": round(self._saturation_tokens_per_s, 2),
                },
                "unloaded": self._unloaded.as_json(),
                "profile_mape": self._profile.mape if self._profile is not None else None,
                "scheduling": dict(settings.scheduling),
                "gold_alone": self._gold_alone,
                "runs": self._runs,
            },
        )
        write(settings.out, result)
        return result

    def _teller(self, what: str, total: int) -> Callable[[RequestRecord], None]:
        """Progress: a line now and then."""
        done, told = 0, time.monotonic()

        def tell_sometimes(_record: RequestRecord) -> None:
            nonlocal done, told
            done += 1
            if time.monotonic() - told >= TELL_EVERY_S:
                told = time.monotonic()
                self._say(f"{what}: {done} of {total} requests over")

        return tell_sometimes


def rows_of(settings: SloSettings) -> list[TraceRow]:
    """The requests of every run."""
    if settings.trace is None:
        return synthetic_trace(settings.requests, settings.seed)
    return repeat_rows(read_trace(settings.trace, limit=settings.requests), settings.requests)


@contextlib.asynccontextmanager
async def _client(url: str) -> AsyncIterator[LoadClient]:
    async with LoadClient(url, timeout_s=900) as client:
        await client.open(CONNECTIONS)
        yield client


async def _add_server_side(records: Sequence[RequestRecord], log: Path) -> None:
    """What only the ingress knows: how often a request was preempted."""
    await asyncio.sleep(0.3)  # its last lines
    wanted = {record.request_id: record for record in records}
    with contextlib.suppress(OSError):
        for line in await asyncio.to_thread(_lines, log):
            entry = json.loads(line)
            record = wanted.get(entry.get("id", ""))
            if record is not None:  # a later run of the same stack uses the same ids: the last line counts
                record.preempted = entry.get("preempted", 0)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _keep_log(log: Path, directory: Path, name: str) -> None:
    """The ingress' own account of the runs, beside the client's."""
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        shutil.copyfile(log, directory / f"{name}-ingress.jsonl")


def _write_records(directory: Path, measured: Measured) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    via = "" if measured.via == "ingress" else f"-{measured.via}"
    path = directory / f"{measured.policy}{via}-{measured.load:g}.jsonl"
    lines = [json.dumps(record.as_json()) for record in measured.run.records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
