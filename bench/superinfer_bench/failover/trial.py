"""One request, one kill, and the time until its client has a token it did not have.

The whole executor dies, sidecar and engine: what is restored comes from its peer. Time runs from the kill,
at the client. What died starts again only when the request has ended, whatever the method: executors have
machines of their own, where one that starts takes no core from the one that goes on. `restart` is a client
that notices at once and asks again, as clients of engines without resume do: it has to be told everything it
had before it hears something new.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import httpx

from superinfer_bench.chaos.answers import Answer, compare
from superinfer_bench.chaos.cases import COMPLETIONS, Case
from superinfer_bench.chaos.client import Asked, ask
from superinfer_bench.chaos.site import MODEL, Site, kill
from superinfer_bench.stack import BenchFailed

TOKENS: Final = 48
CUT_AFTER: Final = 24
PATIENCE_S: Final = 900.0
"""A prompt of 4,096 tokens takes a slow machine a minute, and it is computed twice while its client waits."""
_FIRST_ID, _IDS = 100, 20_000
_LOOKS: Final = 100
_LOOK_S: Final = 0.1


class Method(StrEnum):
    """What becomes of the request."""

    CHECKPOINT = "checkpoint"
    REPLAY = "replay"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Trial:
    """What one kill cost.

    Attributes:
        detection_ms: from the kill until the ingress knew; None where the client did without it.
        decision_ms: from there until another executor was asked.
        fetch_ms: of the sidecar there, for blocks of peers.
        load_ms: of the engine there, for copying blocks into its cache.
        speak_ms: from the decision to the first output at the ingress: fetching, loading and computing.
        gap_ms: of a token and the next before the kill, for comparison.
        tokens_recomputed: prompt and delivered tokens that were neither restored nor cached.
        bytes_moved: KV that travelled to the peer before the kill, and from it after.
        exact: the answer is the one nobody cut.
    """

    context: int
    method: Method
    next_token_ms: float
    detection_ms: float | None
    decision_ms: float | None
    fetch_ms: float
    load_ms: float
    speak_ms: float | None
    gap_ms: float
    tokens_recomputed: int
    bytes_moved: int
    exact: bool

    def as_json(self) -> dict[str, Any]:
        """One run of the report."""
        return {
            "context": self.context,
            "method": self.method.value,
            "next_token_ms": round(self.next_token_ms, 1),
            "tokens_recomputed": self.tokens_recomputed,
            "bytes_moved": self.bytes_moved,
            "detection_ms": _rounded(self.detection_ms),
            "phases": {
                "decision_ms": _rounded(self.decision_ms),
                "fetch_ms": _rounded(self.fetch_ms),
                "load_ms": _rounded(self.load_ms),
                "speak_ms": _rounded(self.speak_ms),
            },
            "token_gap_ms": round(self.gap_ms, 1),
            "exact": self.exact,
        }


async def run_trial(
    site: Site, client: httpx.AsyncClient, context: int, method: Method, rng: random.Random
) -> Trial:
    """Ask, kill, wait, compare; every executor serves before and after."""
    await site.until_serving(len(site.names))
    case = _case(context, rng)
    had = {name: await _counted(site, client, name) for name in site.names}
    asking, begun = await _asked_and_cut(client, site.url, case)
    victim, peer = await _who_has_it(site, client)
    with site.keeping_engines_down():
        killed_ms = kill([site.sidecar_pid(victim), *site.engine_pids(victim)])
        if method is Method.RESTART:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            asked = await _ask(client, site.url, case)
            next_ms = asked.token_ms[CUT_AFTER] - killed_ms
        else:
            asked = await asking
            spoken_ms = killed_ms + _in_flight_ms(asked, killed_ms)
            next_ms = next(at for at in asked.token_ms if at > spoken_ms) - killed_ms
        if asked.broken:
            raise BenchFailed(f"{method.value} at {context}: {asked.broken}")
        moved = await _counted(site, client, peer) - had[peer]
    await site.until_serving(len(site.names))
    # What was asked again from its beginning is an uncut answer already; what was cut began as it does.
    reference = asked if method is Method.RESTART else await _ask(client, site.url, case)
    record = await _record(site, asked.request_id)
    resume = next(iter(record["resumes"]), None)
    return Trial(
        context=context,
        method=method,
        next_token_ms=next_ms,
        detection_ms=resume["lost_at_ms"] - killed_ms if resume else None,
        decision_ms=resume["decision_ms"] if resume else None,
        fetch_ms=moved.fetch_ms,
        load_ms=moved.load_ms,
        speak_ms=resume["gap_ms"] - resume["decision_ms"] if resume else None,
        gap_ms=_gap_ms(reference),
        tokens_recomputed=context + CUT_AFTER if method is Method.RESTART else record["recomputed_tokens"],
        bytes_moved=int(moved.moved_bytes),
        exact=compare(reference.answer, asked.answer).same and begins_as(reference.answer, begun.answer),
    )


def begins_as(whole: Answer, begun: Answer) -> bool:
    """Whether every choice of an answer that was cut is how that choice of the whole answer begins."""
    return all(
        whole.choices[number].tokens[: len(choice.tokens)] == choice.tokens
        for number, choice in begun.choices.items()
    )


async def _asked_and_cut(
    client: httpx.AsyncClient, url: str, case: Case
) -> tuple[asyncio.Task[Asked], Asked]:
    """The request as it runs, once its client has the tokens it is to have before the kill; and those."""
    cut = asyncio.Event()
    had: list[Asked] = []

    def on_tokens(asked: Asked) -> None:
        if asked.tokens >= CUT_AFTER and not cut.is_set():
            had.append(asked)
            cut.set()

    asking = asyncio.create_task(_ask(client, url, case, on_tokens))
    waiting = asyncio.create_task(cut.wait())
    await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not cut.is_set():
        raise BenchFailed(f"the request ended before it could be cut: {(await asking).broken}")
    return asking, had[0]


async def _ask(
    client: httpx.AsyncClient, url: str, case: Case, on_tokens: Callable[[Asked], None] | None = None
) -> Asked:
    return await ask(client, url, case, on_tokens=on_tokens, patience_s=PATIENCE_S)


async def warm_up(site: Site, client: httpx.AsyncClient, rng: random.Random) -> None:
    """A request for every executor: the first of a process pays for what later ones find."""
    asked = await asyncio.gather(*(ask(client, site.url, _case(64, rng)) for _ in range(2 * len(site.names))))
    for each in asked:
        if each.broken:
            raise BenchFailed(f"a request without a kill failed: {each.broken}")


def _case(context: int, rng: random.Random) -> Case:
    prompt = [_FIRST_ID + rng.randrange(_IDS) for _ in range(context)]
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    return Case(f"{context} tokens", COMPLETIONS, body, greedy=True)


def _in_flight_ms(asked: Asked, killed_ms: float) -> float:
    """Tokens sent before the kill may reach the client just after it: they are not the next token."""
    gap_ms = _gap_ms(asked)
    late = [at for at in asked.token_ms if killed_ms < at < killed_ms + gap_ms / 2]
    return max(late, default=killed_ms) - killed_ms


def _gap_ms(asked: Asked) -> float:
    gaps = sorted(
        b - a for a, b in zip(asked.token_ms[1:CUT_AFTER], asked.token_ms[2:CUT_AFTER], strict=False)
    )
    return gaps[len(gaps) // 2]


async def _who_has_it(site: Site, client: httpx.AsyncClient) -> tuple[str, str]:
    serving = await site.serving(client)
    victim = next((name for name, running in serving.items() if running), None)
    if victim is None:
        raise BenchFailed("nobody has the request")
    return victim, next(name for name in site.names if name != victim)


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a sidecar has counted: KV taken as a copy or fetched, and the time of fetching and loading."""

    moved_bytes: float
    fetch_ms: float
    load_ms: float

    def __sub__(self, before: "_Counted") -> "_Counted":
        return _Counted(
            self.moved_bytes - before.moved_bytes,
            self.fetch_ms - before.fetch_ms,
            self.load_ms - before.load_ms,
        )


async def _counted(site: Site, client: httpx.AsyncClient, name: str) -> _Counted:
    async def of(counter: str) -> float:
        return await site.sidecar_metric(client, name, f"superinfer_checkpoint_{counter}_total")

    moved = await of("taken_bytes") + await of("fetched_bytes")
    return _Counted(moved, await of("restore_ms"), await of("engine_load_ns") / 1e6)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


async def _record(site: Site, request_id: str) -> Mapping[str, Any]:
    """The request's line in the ingress' log, which is written a moment after its end."""
    for _ in range(_LOOKS):
        for line in reversed(site.request_log.read_text().splitlines()):
            record: Mapping[str, Any] = json.loads(line)
            if record["request_id"] == request_id:
                return record
        await asyncio.sleep(_LOOK_S)
    raise BenchFailed(f"request {request_id} is not in the ingress' log")
