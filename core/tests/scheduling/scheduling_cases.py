"""Requests and engines for scheduling tests, plain and random."""

from hypothesis import strategies as st

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import ForecastSnapshot, RankLoad
from superinfer_core.scheduling.policy import Order, SchedulingPolicy
from superinfer_core.scheduling.state import EngineState, Phase, RequestState
from superinfer_core.slo import Rank, RequestSlo, Tier

MODEL = StepModel(5.0, 0.10, 0.0, 0.06, 0.0)
CTX = DecisionContext(MODEL)
NOW = 100_000.0


def waiting(
    name: str, tier: Tier, *, prompt: int = 500, ttft: float | None = None, waited: float = 0.0
) -> RequestState:
    targets = {Tier.GOLD: (3, 20.4), Tier.SILVER: (6, 30.6), Tier.BRONZE: (15, 51.0)}
    multiple, itl = targets[tier]
    target = ttft if ttft is not None else multiple * MODEL.prefill_ms(prompt, chunk_tokens=2048) + 50
    slo = RequestSlo(f"t/{tier.value}", Rank(tier.rank), ttft_ms=target, itl_ms=itl)
    return RequestState(name, slo, NOW - waited, Phase.WAITING, prompt, 0, 0, 100)


def decoding(
    name: str, tier: Tier, *, done: int = 10, total: int = 200, ahead_ms: float = 0.0
) -> RequestState:
    r = waiting(name, tier)
    itl = r.slo.itl_ms or 1.0
    first = NOW - done * itl + itl + ahead_ms  # the next token is due in one target plus `ahead_ms`
    return RequestState(name, r.slo, first - 50, Phase.DECODE, 500, 500 + done, done, total, first)


def engine(*requests: RequestState, places: int = 32) -> EngineState:
    return EngineState(places, 2048, 1_000_000, requests)


wild = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1e6),
    st.sampled_from([0.0, 1e-300, 1e308, float("inf"), float("nan")]),
)
targets = st.one_of(st.none(), wild)


@st.composite
def slos(draw: st.DrawFn) -> RequestSlo:
    return RequestSlo(
        contract=draw(st.sampled_from(["", "a/b", "a/c"])),
        rank=Rank(draw(st.sampled_from([0, 1, 2, 9])), draw(st.integers(-3, 3))),
        ttft_ms=draw(targets),
        itl_ms=draw(targets),
        e2e_ms=draw(targets),
        max_jitter_ms=draw(targets),
        quantile=draw(st.sampled_from([0.5, 0.9, 0.99])),
        best_effort=draw(st.booleans()),
        contract_holds=draw(st.booleans()),
        budget_left=draw(st.floats(0, 1)),
    )


@st.composite
def states(draw: st.DrawFn, request_id: str = "r") -> RequestState:
    phase = draw(st.sampled_from(list(Phase)))
    prompt, output = draw(st.integers(1, 10_000)), draw(st.integers(0, 3000))
    if phase is Phase.DECODE:
        output = max(1, output)
    return RequestState(
        request_id,
        draw(slos()),
        draw(st.floats(-1e7, 1e7)),
        phase,
        prompt,
        draw(st.integers(0, prompt + output)),
        output,
        output + draw(st.integers(1, 3000)),
        draw(st.floats(-1e7, 1e7)) if output else None,
        draw(st.integers(0, 4)),
    )


@st.composite
def engines(draw: st.DrawFn, most: int = 12) -> EngineState:
    count = draw(st.integers(0, most))
    requests = tuple(draw(states(f"r{i}")) for i in range(count))
    return EngineState(
        draw(st.integers(1, 8)), draw(st.integers(1, 4096)), draw(st.integers(1, 100_000)), requests
    )


contexts = st.builds(
    DecisionContext,
    st.builds(StepModel, *(st.floats(0, x) for x in (100, 10, 1, 10, 0.1))),
    st.builds(SchedulingPolicy, order=st.sampled_from(list(Order))),
    forecast=st.just(ForecastSnapshot((RankLoad(Rank(0), 0.3, 8.0, 0.002, 0.8),), 60.0)),
)
