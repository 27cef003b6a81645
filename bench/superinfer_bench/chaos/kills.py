"""Who is killed, when, and what the machine made of it.

A victim is drawn among the executors that serve, those with running requests first. The moment is drawn, too:
any, or that of some request's beginning, first token or last token, whose executor then is the victim.
What a kill cost is read from the ingress' request log: every request that went on says which executor it left
and when it heard of it, on the machine's one monotonic clock.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import Any, Final

import httpx

from superinfer_bench.chaos.client import Asked
from superinfer_bench.chaos.site import Site, kill

TARGETS: Final = {"engine": 5, "sidecar": 3, "executor": 3, "peer": 2, "both": 2}
"""How often each is drawn. peer: the executor that holds the victim's copies; both: it and its peer."""
MOMENTS: Final = {"any": 8, "beginning": 3, "first token": 3, "last token": 4}
_LONGEST_PAUSE_S: Final = 0.6
_LONGEST_PREFILL_S: Final = 0.15
_AIMED_WITHIN_S: Final = 10.0
_LOOK_S: Final = 0.05
_HEARD_WITHIN_MS: Final = 20_000.0


@dataclass(slots=True)
class Kill:
    """One kill -9.

    Attributes:
        at_ms: on the machine's monotonic clock.
        moment: what it was aimed at.
        victims: executors whose processes died.
        parts: which of their processes.
        running: requests those executors had, as the ingress said a moment before.
        resumes: of requests that left them because of it, as the request log has them.
    """

    target: str
    moment: str
    at_ms: float
    victims: tuple[str, ...]
    parts: str
    running: int
    resumes: list[Mapping[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """One entry of the report."""
        resumes = [each for each in self.resumes if each["gap_ms"] is not None]
        heard = [each["lost_at_ms"] - self.at_ms for each in self.resumes]
        spoke = [each["gap_ms"] + each["lost_at_ms"] - self.at_ms for each in resumes]
        restored = [each["gap_ms"] - each["decision_ms"] for each in resumes]
        decided = [each["decision_ms"] for each in resumes]
        return {
            "target": self.target,
            "moment": self.moment,
            "parts": self.parts,
            "victims": list(self.victims),
            "phase": self._phase(),
            "running": self.running,
            "detection_ms": _rounded(max(heard, default=None)),
            "decision_ms": _middle(decided),
            "restore_ms": _middle(restored),
            "first_token_ms": _middle(spoke),
            "resumed": len(self.resumes),
        }

    def _phase(self) -> str:
        if not self.resumes:
            return "idle"
        delivered = [each["delivered_tokens"] for each in self.resumes]
        if not any(delivered):
            return "prefill"
        return "decode" if all(delivered) else "prefill and decode"


class Killer:
    """Draws and kills."""

    def __init__(self, site: Site, client: httpx.AsyncClient, rng: random.Random) -> None:
        self._site = site
        self._client = client
        self._rng = rng
        self._aim = "any"
        self._hit: asyncio.Future[str] | None = None
        self.kills: list[Kill] = []

    def begun(self, _asked: Asked) -> None:
        """A client has sent a request."""
        self._at("beginning", "")

    def spoke(self, asked: Asked) -> None:
        """A client has had something of an answer."""
        if asked.tokens == 1:
            self._at("first token", asked.executor)
        elif asked.tokens >= asked.case.most_tokens - 1:
            self._at("last token", asked.executor)

    def _at(self, moment: str, executor: str) -> None:
        if self._aim == moment and self._hit is not None and not self._hit.done():
            self._hit.set_result(executor)

    async def kill_one(self, target: str | None = None) -> Kill:
        """Wait for a moment at which it can be done, and do it."""
        if target is None:
            target = self._rng.choices(list(TARGETS), list(TARGETS.values()))[0]
        while True:
            await asyncio.sleep(self._rng.uniform(0.0, _LONGEST_PAUSE_S))
            serving = await self._site.serving(self._client)
            if len(serving) >= 2:
                break
            await asyncio.sleep(_LOOK_S)
        moment = self._rng.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        aimed_at = await self._wait_for(moment)
        busy = [name for name, running in serving.items() if running] or list(serving)
        victim = aimed_at if aimed_at in self._site.names else self._rng.choice(busy)
        victims, parts, pids = self._victims(target, victim)
        running = sum(serving.get(name, 0) for name in victims)
        done = Kill(target, moment, kill(pids), victims, parts, running)
        self.kills.append(done)
        return done

    async def _wait_for(self, moment: str) -> str:
        """Return at that moment; the executor of the request it is one of, or ""."""
        if moment == "any":
            return ""
        self._aim, self._hit = moment, asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_AIMED_WITHIN_S):
                executor = await self._hit
        except TimeoutError:
            return ""
        finally:
            self._aim = "any"
        if moment == "beginning":
            await asyncio.sleep(self._rng.uniform(0.0, _LONGEST_PREFILL_S))
        return executor

    def _victims(self, target: str, victim: str) -> tuple[tuple[str, ...], str, list[int | None]]:
        site = self._site
        peer = site.holder_of(victim)
        if target == "engine":
            pids = site.engine_pids(victim)
            core = self._rng.random() < 0.5 and len(pids) > 1
            return (victim,), "EngineCore" if core else "engine", list(pids[1:] if core else pids[:1])
        if target == "sidecar":
            return (victim,), "sidecar", [site.sidecar_pid(victim)]
        victims = {"executor": (victim,), "peer": (peer,), "both": (victim, peer)}[target]
        every: list[int | None] = []
        for name in victims:
            every += [site.sidecar_pid(name), *site.engine_pids(name)]
        return victims, "engine and sidecar", every


def attribute(kills: Iterable[Kill], records: Iterable[Mapping[str, Any]]) -> int:
    """Give every resume to the latest kill that can have caused it; how many have none."""
    latest_first = sorted(kills, key=lambda each: -each.at_ms)
    unexplained = 0
    for record in records:
        for resume in record["resumes"]:
            heard = resume["lost_at_ms"]
            cause = next(
                (
                    each
                    for each in latest_first
                    if resume["left"] in each.victims and each.at_ms <= heard < each.at_ms + _HEARD_WITHIN_MS
                ),
                None,
            )
            if cause is None:
                unexplained += 1
            else:
                cause.resumes.append(resume)
    return unexplained


def detections(kills: Iterable[Kill]) -> dict[str, dict[str, float | int | None]]:
    """How soon kills were known, by the processes that died: those under which requests ran."""
    by_parts: dict[str, list[float]] = {}
    for each in kills:
        detected_ms = each.as_json()["detection_ms"]
        if detected_ms is not None:
            by_parts.setdefault(each.parts, []).append(detected_ms)
    return {
        parts: {
            "kills": len(found),
            "median_ms": _middle(found),
            "p95_ms": sorted(found)[ceil(0.95 * len(found)) - 1],
            "slowest_ms": max(found),
        }
        for parts, found in sorted(by_parts.items())
    }


def _middle(values: list[float]) -> float | None:
    return _rounded(median(values)) if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
