"""Step times add up however a prefill is cut, and profiles survive a round trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_core.prediction.step_model import StepModel

MODEL = StepModel(5.0, 0.10, 0.00005, 0.045, 7e-5)


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=6), st.integers(0, 4000))
def test_chunks_of_a_prefill_cost_what_the_whole_costs(chunks: list[int], context: int) -> None:
    before, total = context, 0.0
    for c in chunks:
        total += MODEL.prefill_work_ms(c, before)
        before += c
    assert total == pytest.approx(MODEL.prefill_work_ms(sum(chunks), context))


@given(st.floats(0.01, 1000), st.integers(0, 8000))
def test_tokens_within_a_budget_cost_the_budget(budget: float, context: int) -> None:
    tokens = MODEL.prefill_tokens_within(budget, context)
    assert MODEL.prefill_work_ms(tokens, context) == pytest.approx(budget, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_a_model_that_makes_no_sense_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        StepModel(5.0, bad)


def test_coefficients_travel() -> None:
    assert StepModel.from_coefficients(MODEL.coefficients) == MODEL
    with pytest.raises(ValueError, match="5 coefficients"):
        StepModel.from_coefficients([1.0])


def test_a_profile_survives_json_and_answers_its_quantile() -> None:
    profile = Profile.model_validate(
        {
            "model": "tiny",
            "engine": "vllm 0.32.0",
            "machine": "2 cores",
            "dtype": "float32",
            "step_model": {"base_ms": 5, "per_prefill_token_ms": 0.06},
            "residuals": [{"quantile": 0.5, "factor": 1.0}, {"quantile": 0.99, "factor": 1.2}],
            "max_num_seqs": 32,
            "max_step_tokens": 2048,
        }
    )
    assert Profile.load_json(profile.dump_json()) == profile
    assert profile.steps.step_ms(prefill_tokens=100) == pytest.approx(11)
    assert profile.factor(0.9) == 1.2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": 1}', "x" * 60_000])
def test_a_bad_profile_says_so(text: str) -> None:
    with pytest.raises(ProfileInvalid) as told:
        Profile.load_json(text)
    assert not str(told.value).startswith(":"), "no field is named where there is none"
