"""The order of the demo: warm up, write contracts for this machine, tell the story, show the books."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from statistics import median
from typing import Any, Final

import httpx

from superinfer.demo import failover, story
from superinfer.demo.client import Ask, Client
from superinfer.demo.result import Aim, Result, requests_from_log
from superinfer.demo.screen import Screen, ms
from superinfer.demo.stage import Stage
from superinfer.demo.targets import (
    FACTORS,
    NAMESPACE,
    contract_yaml,
    targets,
    unloaded_itl_ms,
    unloaded_ttft_ms,
)
from superinfer.profiling.measure import machine_name
from superinfer.serving.options import ServeOptions
from superinfer.serving.plan import request_log
from superinfer.serving.session import Session
from superinfer_core.prediction.profile import Profile

PARTS: Final = (
    story.gold_within_contract,
    story.gold_overtakes_bronze,
    story.refused_with_reason,
    story.preempted_and_finished,
    failover.engine_killed_mid_answer,
)
Part = Callable[[Stage], Coroutine[Any, Any, list[Aim]]]
ATTEMPTS: Final = 3
WARM_UPS: Final = ("Say hello.", "What is two plus two?", "Name a fruit.")
CONTRACTS_SEEN_WITHIN_S: Final = 15.0
LEAST_SLOWNESS: Final = 1.0


async def tell(session: Session, profile: Profile, options: ServeOptions, screen: Screen) -> Result:
    """Run every part against a serving session and collect the record."""
    async with httpx.AsyncClient(base_url=session.url, timeout=120.0) as http:
        client = Client(http, session.model)
        screen.chapter(
            "SuperInfer demo",
            f"{session.model} on {profile.engine}, {profile.dtype}; {profile.machine}; {profile.max_num_seqs}"
            f" places in the batch; serving at {session.url}.",
        )
        slowness = await _slowness(client, profile, session)
        await _apply_contracts(http, profile, slowness, options, screen)
        engine_pid = session.engine_pid
        stage = Stage(client, screen, profile, slowness, request_log(session.run_dir), engine_pid)
        result = Result(machine_name())
        for part in PARTS:
            result.aims += await _told(part, stage)
        result.aims += await _books(http, screen)
        result.requests = [r for r in requests_from_log(stage.request_log) if r["contract"]]
        _show_requests(result, screen)
        return result


async def _told(part: Part, stage: Stage) -> list[Aim]:
    """One part of the story; again where this machine, busy elsewhere, did not let it happen."""
    aims: list[Aim] = []
    for attempt in range(1, ATTEMPTS + 1):
        aims = await part(replace(stage, attempt=attempt))
        if all(aim.met for aim in aims):
            break
        if attempt < ATTEMPTS:
            stage.screen.say("Not as told. This machine may be busy with other things: once more.")
    return [replace(aim, got={**aim.got, "attempts": attempt}) for aim in aims]


async def _slowness(client: Client, profile: Profile, session: Session) -> float:
    """How much slower the machine is now than when it was measured; the predictor learns it meanwhile."""
    answers = [
        await client.ask(Ask(f"warm-up-{n}", "", question, 8)) for n, question in enumerate(WARM_UPS, 1)
    ]
    expected = unloaded_itl_ms(profile)
    measured = [answer.itl_ms for answer in answers if answer.itl_ms is not None]
    return max(LEAST_SLOWNESS, median(measured) / expected) if measured else LEAST_SLOWNESS


async def _apply_contracts(
    http: httpx.AsyncClient, profile: Profile, slowness: float, options: ServeOptions, screen: Screen
) -> None:
    screen.say(
        f"Measured here: a prompt of 64 tokens takes {ms(unloaded_ttft_ms(profile, 64))} ms to its first"
        f" token, a full batch {ms(unloaded_itl_ms(profile))} ms a token"
        + (f"; right now this machine is {slowness:.1f} times as slow" if slowness > 1.2 else "")
        + ". The contracts below ask for multiples of that; a GPU would be asked for milliseconds."
    )
    if options.contracts is not None:
        for name in FACTORS:
            path = options.contracts / f"{name}.yaml"
            path.write_text(contract_yaml(profile, name, slowness=slowness))
    rows = []
    for name, factors in FACTORS.items():
        for target in targets(profile, name, slowness=slowness):
            factor = getattr(factors, target.metric.lower())
            rows.append(
                (name, f"{target.metric} P{target.percentile}", ms(target.target_ms), f"{factor:g} × idle")
            )
    screen.table(("contract", "objective", "target ms", "which is"), rows)
    await _until_listed(http, {f"{NAMESPACE}/{name}" for name in FACTORS})


async def _until_listed(http: httpx.AsyncClient, ids: set[str]) -> None:
    async with asyncio.timeout(CONTRACTS_SEEN_WITHIN_S):
        while not ids <= {c["id"] for c in await _contracts(http) if c["accepted"]}:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # what is waited for happens in another process


async def _contracts(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = (await http.get("/v1/contracts")).json()
    listed = answer.get("data", [])
    return listed if isinstance(listed, list) else []


async def _books(http: httpx.AsyncClient, screen: Screen) -> list[Aim]:
    screen.chapter(
        "6  The books",
        "What every contract was promised and got, as GET /v1/contracts has it. A refused request costs"
        " availability, which these contracts do not promise; an admitted one must be kept.",
    )
    rows, fulfilled = [], {}
    for contract in await _contracts(http):
        books = contract["attainment"]
        if not books["offered"]:
            continue
        fulfilled[contract["id"]] = books["fulfilled"]
        missed = ", ".join(o["metric"] for o in books["objectives"] if not o["met"])
        rows.append(
            (
                str(contract["id"]),
                str(books["offered"]),
                str(books["admitted"]),
                str(books["kept"]),
                f"{100 * books['budget_left']:.0f} %",
                "yes" if books["fulfilled"] else f"no: {missed or 'nothing kept'}",
            )
        )
    screen.table(("contract", "asked", "admitted", "kept", "budget left", "fulfilled"), rows)
    met = bool(fulfilled) and all(fulfilled.values())
    return [Aim("contracts_fulfilled", "every contract that was asked for is fulfilled", fulfilled, met)]


def _show_requests(result: Result, screen: Screen) -> None:
    rows = [
        (
            str(r["id"]),
            str(r["contract"]).rpartition("/")[2],
            ms(r["predicted_ttft_ms"]),
            ms(r["ttft_ms"]),
            ms(r["predicted_e2e_ms"]),
            ms(r["e2e_ms"]),
            "yes" if r["kept"] else (r["code"] or "no"),
            str(r["preempted"] or ""),
        )
        for r in result.requests
    ]
    headings = ("request", "contract", "predicted", "TTFT ms", "predicted", "E2E ms", "kept", "preempted")
    screen.table(headings, rows)
