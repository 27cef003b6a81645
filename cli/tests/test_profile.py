"""`superinfer profile`: what it writes predicts the engine it measured."""

import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superinfer.profiling.fit import fit_steps
from superinfer.profiling.measure import measure
from superinfer_core.prediction.profile import MAX_PROFILE_BYTES, Profile
from superinfer_core.prediction.step_model import StepFacts, StepModel


@contextlib.contextmanager
def stub(socket: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "superinfer_executor", "stub", "--socket", str(socket)]
    command += ["--step-ms", "4", "--seq-ms", "1", "--prefill-ms-per-token", "0.05", "--max-num-seqs", "4"]
    process = subprocess.Popen([*command, "--max-model-len", "512"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)
        assert process.stdout is not None
        process.stdout.close()


def test_every_prompt_length_and_batch_size_is_measured(tmp_path: Path) -> None:
    with stub(tmp_path / "e.sock"):
        measured = asyncio.run(measure(tmp_path / "e.sock", lambda _: None, longest_prompt=128, repeats=1))
    profile = Profile.load_json(measured.profile.dump_json())
    assert len(profile.dump_json()) < MAX_PROFILE_BYTES
    # The stub sleeps its step times, so a busy machine makes steps longer and never shorter.
    assert profile.steps.step_ms(decode_seqs=1) > 4.5
    assert profile.steps.step_ms(decode_seqs=4) > profile.steps.step_ms(decode_seqs=1)
    assert [entry.seqs for entry in profile.unloaded_itl] == [1, 2, 4]
    assert [entry.prompt_tokens for entry in profile.unloaded_ttft] == [16, 32, 64, 128]


def test_the_command_writes_a_profile_for_a_running_engine(
    superinfer: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "profile.json"
    with stub(tmp_path / "e.sock"):
        arguments = ("--socket", str(tmp_path / "e.sock"), "--longest-prompt", "32", "--repeats", "1")
        done = superinfer("profile", *arguments, "--out", str(out))
    assert done.exit_code == 0
    assert Profile.load_json(out.read_text()).model == "stub"
    assert "mean error" in done.stdout


coefficients = st.floats(0.0, 5.0)


@settings(max_examples=40, deadline=None)
@given(base=st.floats(0.5, 100), seq=coefficients, prefill=coefficients, seed=st.integers(0, 1000))
def test_any_linear_engine_is_fitted_within_its_noise(
    base: float, seq: float, prefill: float, seed: int
) -> None:
    rnd = random.Random(seed)
    truth = StepModel(base, seq, 0.0, prefill, 0.0)

    def step(tokens: int, seqs: int) -> StepFacts:
        facts = StepFacts(1.0, tokens, tokens * tokens / 2, seqs, seqs * 50)
        return StepFacts(truth.predict(facts) * rnd.uniform(0.95, 1.05), *_rest(facts))

    shapes = [(tokens, seqs) for tokens in (16, 128, 512) for seqs in (1, 4)]
    runs = [[step(tokens, 0), *(step(0, seqs) for _ in range(10))] for tokens, seqs in shapes]
    fit = fit_steps(runs)
    assert fit.mape < 0.06
    assert min(fit.model.coefficients) >= 0
    assert [factor for _, factor in fit.residuals] == sorted(factor for _, factor in fit.residuals)


def _rest(facts: StepFacts) -> tuple[int, float, int, int]:
    return (
        facts.prefill_tokens,
        facts.prefill_context_tokens2,
        facts.decode_seqs,
        facts.decode_context_tokens,
    )


def test_facts_nobody_can_use_are_an_error_and_not_a_profile() -> None:
    with pytest.raises(ValueError, match="no step"):
        fit_steps([[StepFacts(0.0, 0, 0.0, 0, 0), StepFacts(float("nan"), 8, 0.0, 0, 0)]])
