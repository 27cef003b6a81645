"""Pausing in a real engine: a decode far ahead of its pace gives way to others, in time and word for word."""

from typing import Any

import pytest

from superinfer_core.scheduling.policy import SchedulingPolicy

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

PATIENT_MS, GOLD_MS = 150.0, 12.0
PATIENT = {"slo_rank": 2, "slo_ttft_ms": 2_000, "slo_itl_ms": PATIENT_MS}
GOLD = {"slo_rank": 0, "slo_ttft_ms": 500, "slo_itl_ms": GOLD_MS}


def serve_beside_a_long_prompt(engine: Any, prompt_of: Any) -> tuple[int, list[str]]:
    """How often the patient answer was passed over while it decoded, and every token that came late."""
    paces = {"patient": PATIENT_MS, "gold": GOLD_MS}
    engine.submit("patient", prompt_of(40, 1), max_tokens=30, **PATIENT)
    engine.submit("gold", prompt_of(40, 2), max_tokens=60, **GOLD)
    firsts: dict[str, float] = {}
    passed_over, late = 0, []
    for number in range(400):
        if number == 8:
            engine.submit("long", prompt_of(1_900, 3), max_tokens=2, slo_ttft_ms=60_000, slo_rank=2)
        if not engine.llm.llm_engine.has_unfinished_requests():
            break
        decoding = "patient" in firsts and "patient" not in engine.finished
        new = engine.step()
        passed_over += decoding and "patient" not in engine.steps[-1]["tokens"]
        for name, pace_ms in paces.items():
            if new.get(name):
                firsts.setdefault(name, engine.now_ms)
                if engine.now_ms > firsts[name] + (len(engine.tokens[name]) - 1) * pace_ms + 1e-6:
                    late.append(f"{name} {len(engine.tokens[name])}")
    assert engine.finished == dict.fromkeys(("patient", "gold", "long"), "length")
    return passed_over, late


def test_who_is_far_ahead_pauses_for_a_prefill_and_is_not_late(engine: Any, prompt_of: Any) -> None:
    passed_over, late = serve_beside_a_long_prompt(engine, prompt_of)
    assert passed_over > 0
    assert late == []


def test_an_answer_that_paused_is_word_for_word_the_same(engine: Any, prompt_of: Any) -> None:
    passed_over, _ = serve_beside_a_long_prompt(engine, prompt_of)
    served = {name: list(engine.tokens[name]) for name in ("patient", "gold")}
    assert passed_over > 0
    assert served["patient"] == engine.alone("patient alone", prompt_of(40, 1), max_tokens=30)
    assert served["gold"] == engine.alone("gold alone", prompt_of(40, 2), max_tokens=60)


def test_where_pausing_is_off_every_step_brings_every_decode_a_token(engine: Any, prompt_of: Any) -> None:
    engine.follow(SchedulingPolicy(pause_decodes=False))
    assert serve_beside_a_long_prompt(engine, prompt_of)[0] == 0
