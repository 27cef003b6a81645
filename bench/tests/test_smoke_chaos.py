"""The short version of `make chaos`: two real engines, five kills, and not one token that differs."""

from collections import Counter

import pytest

from superinfer.paths import models_dir
from superinfer_bench.chaos.bench import ChaosOptions, run
from superinfer_bench.chaos.cases import named
from superinfer_executor.models.tiny import prepare_tiny

pytestmark = pytest.mark.vllm

KINDS = (
    "greedy chat",
    "greedy completion, whole",
    "seeded, two choices",
    "penalties",
    "JSON schema",
    "automatic tool",
    "multi-byte characters",
    "long context",
)


async def test_five_kills_are_not_noticed(tmp_path):
    model = models_dir() / "tiny"
    if not (model / "config.json").is_file():
        model = tmp_path / "tiny"
        prepare_tiny(model)
    options = ChaosOptions(
        model,
        kills=5,
        clients=4,
        executors=2,
        calm_requests=0,
        cases=tuple(named(kind) for kind in KINDS),
    )
    result = await run(options, lambda _: None)
    assert len(result.kills) == 5
    assert [asked.broken for asked in result.asked if asked.broken] == []
    assert result.faults == []
    assert result.tokens["expected"] > 0
    assert result.tokens - Counter(expected=result.tokens["expected"], ties=result.tokens["ties"]) == {}
    assert sum(len(kill.resumes) for kill in result.kills) > 0
