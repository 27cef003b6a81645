"""Wrongly refused: only where the refused request would have been kept and nobody lost for it."""

from superinfer.load.record import RequestRecord
from superinfer.simulation.engine import EngineLimits
from superinfer.simulation.workload import Job
from superinfer_bench.slo.whatif import Replay, wrongly_refused
from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.slo import Rank, RequestSlo, Tier

REPLAY = Replay(EngineLimits(max_num_seqs=2), StepModel(10.0, 0.0, 0.0, 0.1, 0.0), SchedulingPolicy())


def job(name: str, at_ms: float, *, ttft_ms: float = 1000.0, prompt: int = 100, output: int = 10) -> Job:
    slo = RequestSlo("c", Rank(0), ttft_ms=ttft_ms, itl_ms=100.0)
    return Job(name, at_ms, prompt, output, Tier.GOLD, slo)


def recorded(of: Job, *, refused: bool) -> RequestRecord:
    record = RequestRecord.of(of)
    record.status, record.code = (425, "slo_infeasible") if refused else (200, None)
    return record


def check(taken: list[Job], refused: list[Job]) -> int:
    jobs = sorted([*taken, *refused], key=lambda j: j.arrived_ms)
    names = {j.request_id for j in refused}
    records = [recorded(j, refused=j.request_id in names) for j in jobs]
    found: int = wrongly_refused(jobs, records, REPLAY, at_most=40)["wrongly_refused"]
    return found


def test_nobody_refused_is_nobody_wronged() -> None:
    assert check([job("a", 0.0)], []) == 0


def test_refused_on_an_idle_engine_is_wrong() -> None:
    assert check([job("a", 0.0)], [job("b", 5000.0)]) == 1


def test_refused_after_the_last_admitted_is_still_checked() -> None:
    assert check([job("a", 0.0)], [job("b", 60.0), job("c", 90_000.0)]) == 2


def test_refused_because_it_could_never_make_it_is_right() -> None:
    assert check([job("a", 0.0)], [job("b", 5000.0, ttft_ms=1.0)]) == 0


def test_refused_because_another_would_lose_is_right() -> None:
    """Both places are taken for long; who comes next waits beyond its target, or another does."""
    long = [job("a", 0.0, output=200), job("b", 0.0, output=200)]
    assert check(long, [job("c", 10.0, ttft_ms=200.0)]) == 0


def test_the_count_is_scaled_from_an_even_sample() -> None:
    refused = [job(f"r{n}", 5000.0 * (n + 1)) for n in range(10)]
    jobs = [job("a", 0.0), *refused]
    records = [recorded(jobs[0], refused=False), *(recorded(j, refused=True) for j in refused)]
    found = wrongly_refused(jobs, records, REPLAY, at_most=5)
    assert found["wrongly_refused_checked"] == 5
    assert found["wrongly_refused"] == 10
