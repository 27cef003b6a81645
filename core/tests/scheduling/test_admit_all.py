"""Deciding about several requests at once is deciding about each given those before it, only cheaper."""

import hypothesis.strategies as st
from hypothesis import given, settings

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.admission import admit, admit_all
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.slack import first_token_deadline_ms
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.slo import Rank, RequestSlo

NOW_MS = 100.0
CONTEXT = DecisionContext(StepModel(5.0, 0.1, 0.0, 0.1))


def request(request_id: str, tier: int, ttft_ms: float | None, prompt: int, phase: Phase) -> RequestState:
    decoding = phase is Phase.DECODE
    return RequestState(
        request_id,
        RequestSlo("c", Rank(tier), ttft_ms=ttft_ms, itl_ms=50.0, best_effort=tier == 9, quantile=0.9),
        NOW_MS - 10,
        phase,
        prompt,
        prompt + 1 if decoding else 0,
        int(decoding),
        20,
        NOW_MS - 1 if decoding else None,
    )


def requests(prefix: str, phases: list[Phase], most: int) -> st.SearchStrategy[list[RequestState]]:
    one = st.tuples(
        st.sampled_from([0, 1, 2, 9]),
        st.sampled_from([None, 20.0, 60.0, 500.0, 60_000.0]),
        st.sampled_from([1, 50, 400, 2000]),
        st.sampled_from(phases),
    )
    return st.lists(one, max_size=most).map(
        lambda drawn: [request(f"{prefix}{i}", *fields) for i, fields in enumerate(drawn)]
    )


@given(
    candidates=requests("c", [Phase.WAITING], 6),
    there=requests("r", list(Phase), 8),
    places=st.integers(1, 12),
)
@settings(max_examples=200, deadline=None)
def test_together_or_one_by_one(candidates, there, places):
    state = EngineState(places, 512, 1 << 20, tuple(there))
    answers = admit_all(candidates, state, NOW_MS, CONTEXT)
    assert len(answers) == len(candidates)
    if len(candidates) == 1:
        assert answers[0] == admit(candidates[0], state, NOW_MS, CONTEXT)
    for candidate, answer in zip(candidates, answers, strict=True):
        assert answer.admitted == (answer.refusal is None)
        if answer.admitted and not candidate.slo.best_effort and candidate.slo.ttft_ms is not None:
            assert (
                candidate.arrived_ms + answer.prediction.ttft_ms <= first_token_deadline_ms(candidate) + 1e-6
            )


def test_what_fits_together_is_admitted_together_and_what_does_not_one_by_one():
    state = EngineState(8, 512, 1 << 20)
    few = [request(f"c{i}", 0, 500.0, 50, Phase.WAITING) for i in range(4)]
    assert all(answer.admitted for answer in admit_all(few, state, NOW_MS, CONTEXT))
    many = [request(f"c{i}", 0, 500.0, 1500, Phase.WAITING) for i in range(8)]
    admitted = [answer.admitted for answer in admit_all(many, state, NOW_MS, CONTEXT)]
    assert admitted[0]
    assert not all(admitted)
    assert admitted == sorted(admitted, reverse=True)
