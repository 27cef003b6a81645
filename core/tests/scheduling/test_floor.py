"""Prefill never stands still, and never takes no time: a token costs at least a whole step."""

import pytest

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.admission import admit
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.scheduling.step import plan_step
from superinfer_core.slo import Rank, RequestSlo

MODEL = StepModel.from_coefficients((5.0, 0.1, 0.0, 0.06, 0.0))


def decoding(target_ms: float, late_ms: float) -> RequestState:
    """A gold answer at token 10 of 200 whose next token is due `late_ms` before now."""
    slo = RequestSlo("a/gold", Rank(0), ttft_ms=100.0, itl_ms=target_ms)
    first_ms = -late_ms - 10 * target_ms
    return RequestState("gold", slo, first_ms - 50, Phase.DECODE, 100, 110, 10, 200, first_ms)


@pytest.mark.parametrize(
    ("target_ms", "late_ms"),
    [
        pytest.param(5.3, 1.0, id="the pace is just what the model believes a step takes"),
        pytest.param(5.3, 40.0, id="some tokens behind, savable by a hair"),
        pytest.param(4.0, 0.0, id="cannot be kept at all"),
    ],
)
def test_a_running_prefill_moves_every_step(target_ms: float, late_ms: float) -> None:
    slo = RequestSlo("a/bronze", Rank(2), ttft_ms=5_000.0, itl_ms=50.0)
    prefill = RequestState("bronze", slo, -100.0, Phase.PREFILL, 4_000, 512, 0, 100)
    state = EngineState(32, 2_048, 100_000, (decoding(target_ms, late_ms), prefill))
    assert plan_step(state, 0.0, DecisionContext(MODEL)).prefill_budget_tokens > 0


def test_a_tiny_prompt_is_not_promised_a_fraction_of_a_step() -> None:
    slo = RequestSlo("a/hasty", Rank(0), ttft_ms=1.0)
    asked = RequestState("r", slo, 0.0, Phase.WAITING, 1, 0, 0, 2)
    answer = admit(asked, EngineState(32, 2_048, 100_000), 0.0, DecisionContext(MODEL))
    assert not answer.admitted
    assert answer.prediction.ttft_ms == pytest.approx(5.0 + 0.1 + 0.06)  # base, one sequence, one token
