"""The part of the story in which the engine is killed and the answer goes on.

There is one engine here, so the answer waits until it is back; with a second executor it would go on there at
once. Concurrency: one asyncio loop.
"""

import os
import signal
from typing import Any, Final

from superinfer.demo.client import Answer, Ask
from superinfer.demo.questions import STORIES
from superinfer.demo.result import Aim
from superinfer.demo.screen import ms
from superinfer.demo.stage import Stage, meanwhile, trouble

_TOKENS: Final = 96
_TOKENS_BEFORE_KILL: Final = 48
_SAMPLED: Final = {"temperature": 0.8, "seed": 11, "presence_penalty": 0.5}
"""Drawn at random from a seed, and with a penalty on what was said: starting again from the prompt and the
words so far would go on differently."""


async def engine_killed_mid_answer(stage: Stage) -> list[Aim]:
    """(e) kill -9 of the engine in the middle of an answer; the same response goes on, token for token."""
    stage.screen.chapter(
        "5  The engine is killed, the answer goes on",
        f"A story drawn at random from a seed, first undisturbed. Then again, and after {_TOKENS_BEFORE_KILL}"
        " tokens: kill -9. There is one engine here, so the answer waits for it to start again; a second"
        " executor would go on at once.",
    )
    calm = await stage.client.ask(_story(stage, "calm-story"))
    stage.screen.quote("undisturbed", calm.text)
    stage.screen.restart_clock()
    answer = stage.client.begin(_story(stage, "killed-story"))
    async with meanwhile(stage.client.read(answer)) as (reading,):
        await answer.reached(_TOKENS_BEFORE_KILL)
        killed = _kill(stage)
        told = len(answer.token_ms)
        stage.screen.event(f"{told} tokens told; kill -9 of the engine" if killed else "no engine to kill")
        await answer.reached(told + 2)
        if not answer.ended:
            stage.screen.event("the next token, in the same response")
        await reading
    stage.screen.event("done" if answer.complete else trouble(answer))
    stage.screen.quote("killed", answer.text)
    return [await _judged(stage, calm, answer, killed=killed)]


async def _judged(stage: Stage, calm: Answer, answer: Answer, *, killed: bool) -> Aim:
    record = await stage.record(answer.ask.id)
    resumes: list[dict[str, Any]] = record.get("resumes") or []
    pause_ms = max((r.get("gap_ms") or 0.0 for r in resumes), default=None)
    same = answer.complete and answer.text == calm.text
    met = killed and same and bool(resumes)
    stage.screen.verdict(
        f"word for word as without it, in one response; the pause was {ms(pause_ms)} ms, most of it the"
        f" engine's start; {record.get('recomputed_tokens') or 0} tokens were computed again"
        if met
        else trouble(answer),
        met=met,
    )
    got = {
        "same_text": same,
        "resumes": len(resumes),
        "pause_ms": pause_ms,
        "recomputed_tokens": record.get("recomputed_tokens"),
    }
    return Aim("survives_the_engine", "an answer goes on token for token after kill -9", got, met)


def _story(stage: Stage, name: str) -> Ask:
    return stage.ask(name, "", STORIES[0], _TOKENS, sampling=_SAMPLED)


def _kill(stage: Stage) -> bool:
    pid = stage.engine_pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGKILL)
    return True
