"""The run: answers nobody cuts, then the same requests while processes die, then the comparison."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from superinfer_bench.chaos.answers import Answer, compare, internal
from superinfer_bench.chaos.cases import CASES, Case
from superinfer_bench.chaos.client import Asked, ask, many_connections
from superinfer_bench.chaos.kills import Kill, Killer, attribute, detections
from superinfer_bench.chaos.site import Site, SiteOptions, running_site
from superinfer_bench.chaos.ties import is_tie
from superinfer_bench.report import Aim

VLLM_ARGUMENTS: Final = (
    *("--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "8", "--block-size", "32"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)
_DETECTED_MS: Final = 100.0
_SHOWN: Final = 20
_LOGGED_S: Final = 1.0
"""The ingress writes its log a moment after the end of a request."""


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """How much of it.

    Attributes:
        clients: requests at any time.
        most_minutes: of killing; fewer kills then.
        calm_requests: as many are compared without a kill first, to know what batches alone change.
    """

    model: Path
    kills: int = 200
    clients: int = 8
    executors: int = 3
    seed: int = 1
    checkpoints: bool = True
    calm_requests: int = 60
    most_minutes: float = 120.0
    cases: tuple[Case, ...] = CASES


@dataclass(slots=True)
class Result:
    """What came of it, before it is written."""

    kills: list[Kill]
    asked: list[Asked]
    tokens: Counter[str] = field(default_factory=Counter)
    calm: dict[str, int] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    per_case: dict[str, Counter[str]] = field(default_factory=dict)
    unexplained: int = 0
    engine_starts: int = 0
    duration_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The report's own keys."""
        broken = [each for each in self.asked if each.broken]
        return {
            "kills": [each.as_json() for each in self.kills],
            "detection": detections(self.kills),
            "tokens": {key: self.tokens[key] for key in ("expected", "lost", "doubled", "wrong", "ties")},
            "streams": {
                "total": len(self.asked),
                "broken": len(broken),
                "resumed": sum(counts["resumed"] for counts in self.per_case.values()),
                "asked_again": sum(each.refusals for each in self.asked),
            },
            "cases": {name: dict(counts) for name, counts in sorted(self.per_case.items())},
            "calm": self.calm,
            "faults": self.faults[:_SHOWN],
            "resumes_without_kill": self.unexplained,
            "engine_starts": self.engine_starts,
            "duration_s": round(self.duration_s, 1),
        }

    def aims(self, kills: int) -> list[Aim]:
        """What it should be."""
        heard = [each.as_json()["detection_ms"] for each in self.kills if each.resumes]
        broken = sum(bool(each.broken) for each in self.asked)
        return [
            Aim.at_least("kills", kills, len(self.kills)),
            *(Aim.at_most(f"tokens {key}", 0, self.tokens[key]) for key in ("lost", "doubled", "wrong")),
            Aim.at_most("broken streams", 0, broken),
            Aim.at_most("slowest detection", _DETECTED_MS, max(heard, default=None), " ms"),
        ]


async def run(options: ChaosOptions, say: Callable[[str], None]) -> Result:
    """Everything; raises BenchFailed where the machine does not even start."""
    rng = random.Random(options.seed)
    site_options = SiteOptions(
        options.model, options.executors, checkpoints=options.checkpoints, vllm_arguments=VLLM_ARGUMENTS
    )
    began = time.monotonic()
    async with running_site(site_options) as site, many_connections() as client:
        say(f"{options.executors} executors serve after {time.monotonic() - began:.0f} s")
        references = {case.name: await _reference(client, site, case) for case in options.cases}
        say(f"{len(references)} answers nobody cut")
        calm = await _load(client, site, options, rng, lambda asked: len(asked) >= options.calm_requests)
        killer = Killer(site, client, rng)
        killing = asyncio.create_task(_kill(killer, options, say))
        asked = await _load(client, site, options, rng, lambda _: killing.done(), killer)
        await killing
        await site.until_serving(options.executors)
        result = Result(killer.kills, asked)
        result.calm = await _count_calm(client, site, calm, references)
        await _count(client, site, result, references)
        await asyncio.sleep(_LOGGED_S)
        records = [json.loads(line) for line in site.request_log.read_text().splitlines()]
        result.unexplained = attribute(result.kills, records)
        _count_resumed(result, records)
        _explain(result.faults, records)
        result.engine_starts = site.engine_starts
    result.duration_s = time.monotonic() - began
    return result


def _explain(faults: Sequence[dict[str, Any]], records: Sequence[Mapping[str, Any]]) -> None:
    """Where requests that went wrong had been: the log of the ingress does not outlive the run."""
    by_id = {record["request_id"]: record for record in records}
    for fault in faults:
        fault["record"] = by_id.get(fault["request"])


async def _reference(client: httpx.AsyncClient, site: Site, case: Case) -> Answer:
    asked = await ask(client, site.url, case)
    problem = asked.broken or internal(asked.answer)
    if problem:
        raise RuntimeError(f"{case.name} fails without any kill: {problem}")
    return asked.answer


async def _load(
    client: httpx.AsyncClient,
    site: Site,
    options: ChaosOptions,
    rng: random.Random,
    enough: Callable[[Sequence[Asked]], bool],
    killer: Killer | None = None,
) -> list[Asked]:
    """`clients` requests at any time, each kind as often as the others, until it is enough."""
    asked: list[Asked] = []
    hat: list[Case] = []

    def draw() -> Case:
        if not hat:
            hat.extend(rng.sample(options.cases, len(options.cases)))
        return hat.pop()

    async def one_client() -> None:
        begun, spoke = (None, None) if killer is None else (killer.begun, killer.spoke)
        while not enough(asked):
            asked.append(await ask(client, site.url, draw(), on_tokens=spoke, on_begun=begun))

    async with asyncio.TaskGroup() as group:
        for _ in range(options.clients):
            group.create_task(one_client())
    return asked


async def _kill(killer: Killer, options: ChaosOptions, say: Callable[[str], None]) -> None:
    until_s = time.monotonic() + options.most_minutes * 60
    for number in range(1, options.kills + 1):
        if time.monotonic() > until_s:
            say(f"time is up after {number - 1} kills")
            return
        done = await killer.kill_one()
        if number % 10 == 0 or number == options.kills:
            say(f"{number} kills; the last: {done.target} ({done.parts}) of {', '.join(done.victims)}")


async def _count(
    client: httpx.AsyncClient, site: Site, result: Result, references: Mapping[str, Answer]
) -> None:
    for asked in result.asked:
        case, counts = asked.case, result.per_case.setdefault(asked.case.name, Counter())
        counts["answers"] += 1
        if asked.broken:
            counts["broken"] += 1
            result.faults.append(
                {
                    "case": case.name,
                    "request": asked.request_id,
                    "broken": asked.broken,
                    "why": asked.answer.why,
                }
            )
            continue
        if not case.exact:
            problem = internal(asked.answer)
            if problem:
                result.tokens["wrong"] += 1
                result.faults.append({"case": case.name, "problem": problem, "request": asked.request_id})
            continue
        difference = compare(references[case.name], asked.answer)
        result.tokens["expected"] += difference.expected
        if difference.same:
            continue
        if case.greedy and await is_tie(client, site.url, references[case.name], asked.answer, difference):
            result.tokens["ties"] += 1
            counts["ties"] += 1
            continue
        counts["different"] += 1
        result.tokens["lost"] += difference.lost
        result.tokens["doubled"] += difference.doubled
        result.tokens["wrong"] += difference.wrong or int(not (difference.lost or difference.doubled))
        result.faults.append(
            {
                "case": case.name,
                "request": asked.request_id,
                "at": difference.at,
                "lost": difference.lost,
                "doubled": difference.doubled,
                "wrong": difference.wrong,
                "other": difference.other[:300],
            }
        )


async def _count_calm(
    client: httpx.AsyncClient, site: Site, calm: Sequence[Asked], references: Mapping[str, Answer]
) -> dict[str, int]:
    """What differs without a kill: the batch alone."""
    counts: Counter[str] = Counter(requests=len(calm), different=0, ties=0)
    for asked in calm:
        if asked.broken:
            counts["broken"] += 1
        elif asked.case.exact:
            reference = references[asked.case.name]
            difference = compare(reference, asked.answer)
            if not difference.same:
                tie = asked.case.greedy and await is_tie(
                    client, site.url, reference, asked.answer, difference
                )
                counts["ties" if tie else "different"] += 1
    return dict(counts)


def _count_resumed(result: Result, records: Sequence[Mapping[str, Any]]) -> None:
    resumed = {record["request_id"]: len(record["resumes"]) for record in records if record["resumes"]}
    for asked in result.asked:
        if asked.request_id in resumed:
            counts = result.per_case[asked.case.name]
            counts["resumed"] += 1
            counts["resumes"] += resumed[asked.request_id]
