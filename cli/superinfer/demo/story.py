"""Parts of the story, each asking a running server and judging what came back.

Every part returns the aims it claims; a part that does not happen makes its aim unmet, never an exception.
Concurrency: one asyncio loop.
"""

import asyncio
import json
from collections.abc import Sequence
from math import ceil

from superinfer.demo.client import Answer, Ask
from superinfer.demo.questions import BACKLOG, GOLD_QUESTION, STORIES, URGENT_QUESTION, report_of
from superinfer.demo.result import Aim
from superinfer.demo.screen import ms
from superinfer.demo.stage import Stage, meanwhile, trouble

BACKLOG_TOKENS = 40
STORY_TOKENS = 72
TOKENS_BEFORE_URGENT = 8
RELAXED = 1.15
"""The tightest target that would pass is asked for with this much room, since time goes on."""


async def gold_within_contract(stage: Stage) -> list[Aim]:
    """(a) One gold question, answered within its contract; prediction and fact side by side."""
    target = stage.target_ms("gold", "TTFT")
    stage.screen.chapter(
        "1  A promise, kept",
        f"A gold request: the first token is due within {ms(target)} ms. The prediction was"
        " made before the engine saw it.",
    )
    stage.screen.quote("you", GOLD_QUESTION)
    answer = await stage.client.ask(stage.ask("gold-1", "gold", GOLD_QUESTION, 48), stage.screen.stream)
    record = await stage.record(answer.ask.id)
    predicted, actual = answer.header_ms("predicted-ttft"), record.get("ttft_ms") or answer.ttft_ms
    stage.screen.table(
        ("", "predicted ms", "actual ms", "promised ms"),
        (
            ("first token", ms(predicted), ms(actual), ms(target)),
            ("per token", "", ms(record.get("itl_ms") or answer.itl_ms), ms(stage.target_ms("gold", "ITL"))),
            ("whole answer", ms(answer.header_ms("predicted-e2e")), ms(record.get("e2e_ms")), "-"),
        ),
    )
    kept = answer.complete and bool(record.get("kept")) and predicted is not None
    stage.screen.verdict("kept" if kept else trouble(answer), met=kept)
    got = {"predicted_ttft_ms": predicted, "ttft_ms": actual, "target_ms": target}
    return [Aim("gold_within_contract", "a gold answer keeps its contract, prediction shown", got, kept)]


async def gold_overtakes_bronze(stage: Stage) -> list[Aim]:
    """(b) Bronze work is queued; gold arrives last and is served before what waits."""
    places = stage.profile.max_num_seqs
    stage.screen.chapter(
        "2  A backlog, overtaken",
        f"{len(BACKLOG)} bronze questions at once on an engine with {places} places; then one of gold.",
    )
    stage.screen.restart_clock()
    asks = [stage.ask(f"bronze-{n}", "bronze", text, BACKLOG_TOKENS) for n, text in enumerate(BACKLOG, 1)]
    bronze = [stage.client.begin(ask) for ask in asks]
    async with meanwhile(*(_watched(stage, answer) for answer in bronze)) as tasks:
        stage.screen.event(f"{len(BACKLOG)} bronze asked")
        await bronze[0].reached(1)
        await asyncio.sleep(0.2)
        stage.screen.event("gold asks")
        gold = await _watched(stage, stage.client.begin(stage.ask("gold-2", "gold", URGENT_QUESTION, 24)))
        waited = [answer for answer in bronze if _first_at(answer) > _first_at(gold)]
        await asyncio.gather(*tasks)
    stage.screen.quote("gold's answer", gold.text)
    record = await stage.record(gold.ask.id)
    served = gold.complete and all(answer.complete for answer in bronze)
    met = served and len(waited) >= 2 and bool(record.get("kept"))
    stage.screen.verdict(
        f"gold came last and overtook {len(waited)} of {len(bronze)} bronze; all were answered"
        if met
        else _first_trouble([gold, *bronze]),
        met=met,
    )
    got = {"overtaken": len(waited), "gold_kept": record.get("kept"), "all_served": served}
    return [
        Aim("backlog_overtaken", "gold, asked last, is served before at least 2 waiting bronze", got, met)
    ]


async def refused_with_reason(stage: Stage) -> list[Aim]:
    """(c) What cannot be kept is refused before it costs anything, with a target that would pass."""
    target = stage.target_ms("gold", "TTFT") or 1.0
    text = report_of(stage.profile, target / stage.slowness, edition=stage.attempt)
    stage.screen.chapter(
        "3  A promise that cannot be kept, refused",
        f"A long report under gold: reading it takes longer than the {ms(target)} ms gold promises.",
    )
    refused = await stage.client.ask(stage.ask("gold-3", "gold", text, 16))
    stage.screen.say(f"HTTP {refused.status}  {json.dumps(dict(refused.error))}")
    tightest = refused.error.get("tightest_ms")
    explained = (
        refused.status == 425 and refused.code == "slo_infeasible" and isinstance(tightest, int | float)
    )
    aims = [
        Aim(
            "refused_with_reason",
            "425 slo_infeasible with predicted, required and the tightest target that would pass",
            {"status": refused.status, **{k: v for k, v in refused.error.items() if k != "message"}},
            explained,
        )
    ]
    if not explained or tightest is None:
        stage.screen.verdict("it was not refused as it should have been", met=False)
        return aims
    asked_ms = ceil(float(tightest) * RELAXED)
    stage.screen.say(
        f"The same under the contract `reports`, asking for {asked_ms} ms (the tightest and 15 %):"
    )
    again = await stage.client.ask(stage.ask("report", "reports", text, 16, {"x-slo-ttft-ms": str(asked_ms)}))
    record = await stage.record(again.ask.id)
    kept = again.complete and bool(record.get("kept"))
    stage.screen.quote("model", again.text)
    stage.screen.verdict(
        f"refused at once; with {asked_ms} ms it was admitted and the first token came after"
        f" {ms(record.get('ttft_ms'))} ms"
        if kept
        else trouble(again),
        met=kept,
    )
    got = {"asked_ms": asked_ms, "ttft_ms": record.get("ttft_ms"), "status": again.status}
    return [
        *aims,
        Aim("tightest_passes", "asked with the tightest target +15 %, it is served in time", got, kept),
    ]


async def preempted_and_finished(stage: Stage) -> list[Aim]:
    """(d) Running bronze work gives its place to gold and finishes later, with the same words."""
    stage.screen.chapter(
        "4  Running work gives way, and loses nothing",
        "First some bronze stories without interruption, to compare with. Then the same again, and in the"
        " middle of them, with every place taken, gold.",
    )
    stories = STORIES[: stage.profile.max_num_seqs]
    calm_asks = [stage.ask(f"calm-{n}", "bronze", t, STORY_TOKENS) for n, t in enumerate(stories, 1)]
    calm = await _all(stage, calm_asks)
    stage.screen.quote("uninterrupted", calm[0].text)
    stage.screen.restart_clock()
    asks = [stage.ask(f"story-{n}", "bronze", t, STORY_TOKENS) for n, t in enumerate(stories, 1)]
    running = [stage.client.begin(ask) for ask in asks]
    async with meanwhile(*(_watched(stage, answer) for answer in running)) as tasks:
        await asyncio.gather(*(answer.reached(TOKENS_BEFORE_URGENT) for answer in running))
        stage.screen.event("every place taken; gold asks")
        gold = await _watched(stage, stage.client.begin(stage.ask("gold-4", "gold", URGENT_QUESTION, 16)))
        await asyncio.gather(*tasks)
    records = [await stage.record(answer.ask.id) for answer in running]
    preempted = [r.get("preempted") or 0 for r in records]
    same = [a.text == b.text and a.complete for a, b in zip(running, calm, strict=True)]
    for answer, count, equal in zip(running, preempted, same, strict=True):
        stage.screen.event(f"{answer.ask.id}: preempted={count}, {'same text' if equal else 'other text'}")
    gold_kept = bool((await stage.record(gold.ask.id)).get("kept"))
    met = gold.complete and gold_kept and sum(preempted) >= 1 and all(same)
    promised = stage.target_ms("gold", "TTFT")
    stage.screen.verdict(
        f"gold was in time ({ms(gold.ttft_ms)} of {ms(promised)} ms); the displaced story ended word for word"
        " as without it"
        if met
        else _first_trouble([gold, *running]),
        met=met,
    )
    got = {"preempted": sum(preempted), "same_text": all(same), "gold_kept": gold_kept}
    return [
        Aim(
            "preempted_and_finished",
            "a running bronze is preempted for gold and ends with the same text",
            got,
            met,
        )
    ]


async def _all(stage: Stage, asks: Sequence[Ask]) -> list[Answer]:
    return list(await asyncio.gather(*(stage.client.ask(ask) for ask in asks)))


async def _watched(stage: Stage, answer: Answer) -> Answer:
    """Read an answer and say when its first token and its end came."""
    async with meanwhile(stage.client.read(answer)) as (reading,):
        await answer.reached(1)
        if answer.token_ms:
            stage.screen.event(f"{answer.ask.id}: first token")
        await reading
    if answer.complete:
        stage.screen.event(f"{answer.ask.id}: done")
    else:
        stage.screen.event(f"{answer.ask.id}: {trouble(answer)}")
    return answer


def _first_at(answer: Answer) -> float:
    return answer.sent_s + answer.ttft_ms / 1000 if answer.ttft_ms is not None else float("inf")


def _first_trouble(answers: Sequence[Answer]) -> str:
    failed = [answer for answer in answers if not answer.complete]
    return f"{failed[0].ask.id}: {trouble(failed[0])}" if failed else "served, but not as the story wants it"
