"""A request cut off on one engine and resumed on another has the tokens of the uncut run."""

from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

TOKENS = 40
JSON_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "size": {"type": "integer", "maximum": 99}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
PENALTIES = {"presence_penalty": 0.7, "frequency_penalty": 0.4, "repetition_penalty": 1.3}


def grammar() -> dict[str, Any]:
    from vllm.sampling_params import StructuredOutputsParams

    return {"structured_outputs": StructuredOutputsParams(json=JSON_SCHEMA), "ignore_eos": False}


CASES = [
    pytest.param({}, 50, id="greedy"),
    pytest.param({"temperature": 0.9, "top_p": 0.9, "seed": 7}, 50, id="seeded"),
    pytest.param({"temperature": 0.9, "seed": 8}, 700, id="seeded, prompt in chunks"),
    pytest.param({"presence_penalty": 1.5}, 50, id="presence penalty"),
    pytest.param(
        {"temperature": 0.8, "seed": 9, "top_k": 50, "min_p": 0.01, **PENALTIES},
        50,
        id="all penalties, seeded",
    ),
    pytest.param(
        {"min_tokens": 30, "stop_token_ids": list(range(5, 1_000))}, 50, id="min_tokens, then a stop"
    ),
    pytest.param({"temperature": 0.7, "seed": 11, "grammar": True}, 50, id="JSON schema, seeded"),
]


@pytest.mark.parametrize(("options", "prompt_tokens"), CASES)
def test_resumed_elsewhere_the_tokens_are_the_same(
    engine: Any, tight_engine: Any, prompt_of: Any, options: dict[str, Any], prompt_tokens: int
) -> None:
    options = dict(options)
    if options.pop("grammar", False):
        options |= grammar()
    prompt = prompt_of(prompt_tokens, 3)
    engine.submit("whole", prompt, max_tokens=TOKENS, **options)
    engine.run()
    whole = engine.tokens["whole"]
    assert len(whole) > 8

    for cut in sorted({1, len(whole) // 2, len(whole) - 1}):
        name = f"cut{cut}"
        tight_engine.forget_cache()
        tight_engine.submit(name, prompt, max_tokens=TOKENS, resume_token_ids=whole[:cut], **options)
        tight_engine.run()
        assert whole[:cut] + tight_engine.tokens[name] == whole
        assert tight_engine.finished[name] == engine.finished["whole"]


def test_resumed_with_its_blocks_still_cached_the_tokens_are_the_same(engine: Any, prompt_of: Any) -> None:
    sampled = {"temperature": 0.9, "seed": 7, "presence_penalty": 0.5}
    engine.submit("whole", prompt_of(200, 4), max_tokens=80, **sampled)
    engine.run()
    whole = engine.tokens["whole"]
    engine.submit("cut", prompt_of(200, 4), max_tokens=80, resume_token_ids=whole[:60], **sampled)
    engine.step()
    assert engine.steps[-1]["computed"]["cut"] == 256, "prompt and delivered tokens are found by content"
    engine.run()
    assert whole[:60] + engine.tokens["cut"] == whole


def test_a_resumed_request_displaced_and_back_has_the_same_tokens(engine: Any, prompt_of: Any) -> None:
    sampled = {"temperature": 0.9, "seed": 7, "presence_penalty": 0.5}
    whole = list(engine.alone("whole", prompt_of(600, 4), max_tokens=60, **sampled))
    for seed in range(4):
        options = {"resume_token_ids": whole[:20]} if seed == 0 else {}
        engine.submit(
            f"bronze{seed}",
            prompt_of(600, 4) if seed == 0 else prompt_of(40, seed),
            max_tokens=60,
            **sampled,
            **options,
            slo_rank=2 if seed == 0 else 0,
            slo_ttft_ms=60_000,
            slo_itl_ms=2_000,
            **({"slo_since_first_token_ms": 100} if seed == 0 else {}),
        )
    for _ in range(12):
        engine.step()
    engine.submit("gold", prompt_of(64, 50), max_tokens=10, slo_ttft_ms=30, slo_itl_ms=50, slo_rank=0)
    engine.run()
    assert [r for step in engine.steps for r in step["preempted"]] == ["bronze0"]
    assert whole[:20] + engine.tokens["bronze0"] == whole


def test_a_resumed_request_is_due_by_its_pace_not_by_a_first_token(engine: Any, prompt_of: Any) -> None:
    engine.submit(
        "cut",
        prompt_of(20, 1),
        resume_token_ids=[7, 8],
        slo_ttft_ms=50,
        slo_itl_ms=50,
        slo_since_first_token_ms=70,
    )
    tracked = engine.scheduler._tracked["cut"]
    assert tracked.first_token_ms == pytest.approx(engine.now_ms - 70)


@pytest.mark.parametrize(
    "delivered",
    [
        pytest.param([5] * 40, id="as many tokens as it may have"),
        pytest.param([5, 5_000], id="a token the model does not have"),
    ],
)
def test_tokens_that_cannot_be_its_own_fail_that_request_only(
    engine: Any, prompt_of: Any, delivered: list[int]
) -> None:
    engine.submit("fine", prompt_of(20, 1), max_tokens=TOKENS)
    engine.submit("broken", prompt_of(20, 2), max_tokens=TOKENS, resume_token_ids=delivered)
    engine.run()
    assert engine.finished == {"fine": "length", "broken": "error"}
    assert engine.tokens["broken"] == []


def test_delivered_tokens_a_grammar_refuses_fail_that_request_only(engine: Any, prompt_of: Any) -> None:
    engine.submit("fine", prompt_of(20, 1), max_tokens=TOKENS)
    engine.submit("broken", prompt_of(20, 2), max_tokens=TOKENS, resume_token_ids=[300, 301], **grammar())
    engine.run()
    assert engine.finished == {"fine": "length", "broken": "error"}
