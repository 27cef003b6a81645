"""Wrongly refused: put a refused request back into the recorded run and see whether all would have been well.

The run is played again in the simulator with the recorded admissions, its steps slowed to the pace that
was measured. At a refused request's arrival the engine is copied and goes on with that request in it,
until it and everyone it met are done. Refused wrongly = it is kept and nobody who was kept is lost. Pure
and deterministic. Costs about half a second a request, so a large run is sampled evenly and scaled up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from superinfer.load.record import RequestRecord
from superinfer.simulation.engine import EngineLimits, Live, SimEngine, lateness_ms
from superinfer.simulation.workload import Job
from superinfer_bench.slo.outcome import admitted
from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.policy import SchedulingPolicy


@dataclass(frozen=True, slots=True)
class Replay:
    """What stays the same in every replay."""

    limits: EngineLimits
    model: StepModel
    policy: SchedulingPolicy

    @property
    def context(self) -> DecisionContext:
        """For the step plans; admission is not asked."""
        return DecisionContext(self.model, self.policy)


def wrongly_refused(
    jobs: Sequence[Job], records: Sequence[RequestRecord], replay: Replay, *, at_most: int
) -> dict[str, Any]:
    """`wrongly_refused`, how many were checked, and the pace the simulator was given."""
    by_id = {record.request_id: record for record in records}
    taken = [job for job in jobs if admitted(by_id[job.request_id])]
    refused = [job for job in jobs if not admitted(by_id[job.request_id])]
    if not refused:
        return {"wrongly_refused": 0, "wrongly_refused_checked": 0}
    pace = _pace(taken, by_id, replay)
    replay = Replay(replay.limits, _slowed(replay.model, pace), replay.policy)
    step = max(1, -(-len(refused) // at_most))
    chosen = refused[step // 2 :: step]
    wrong = _Recorded(taken, replay).wrong(chosen)
    return {
        "wrongly_refused": round(wrong * len(refused) / len(chosen)),
        "wrongly_refused_checked": len(chosen),
        "simulator_pace": round(pace, 3),
    }


class _Clocked:
    """An engine and its clock, arrivals fed in order. `kept` fills as requests finish."""

    def __init__(
        self, engine: SimEngine, taken: Sequence[Job], replay: Replay, now_ms: float, next_: int
    ) -> None:
        self.engine = engine
        self.taken = taken
        self.context = replay.context
        self.replay = replay
        self.now_ms = now_ms
        self.next = next_
        self.kept: dict[str, bool] = {}
        self.itl_ms: list[float] = []

    def copy(self) -> "_Clocked":
        return _Clocked(self.engine.copy(), self.taken, self.replay, self.now_ms, self.next)

    def step(self) -> bool:
        """Let in who has arrived, then run one step; False when nothing is left to do."""
        self._arrivals()
        facts = self.engine.begin_step(self.now_ms, self.context)
        if facts is None:
            if self.next >= len(self.taken):
                return False
            self.now_ms = max(self.now_ms, self.taken[self.next].arrived_ms)
            return True
        self.now_ms += facts.step_ms
        for live in self.engine.end_step(self.now_ms):
            self.kept[live.job.request_id] = lateness_ms(live) <= 1e-6
            if live.output > 1 and live.first_ms is not None and live.last_ms is not None:
                self.itl_ms.append((live.last_ms - live.first_ms) / (live.output - 1))
        return True

    def _arrivals(self) -> None:
        while self.next < len(self.taken) and self.taken[self.next].arrived_ms <= self.now_ms:
            enter(self.engine, self.taken[self.next])
            self.next += 1


def enter(engine: SimEngine, job: Job) -> None:
    """A request joins the queue; its length is known (ignore_eos)."""
    engine.enqueue(Live(job, job.slo, job.output_tokens))


class _Recorded:
    """The recorded run, played once with a copy kept at every refused arrival that is asked about."""

    def __init__(self, taken: Sequence[Job], replay: Replay) -> None:
        self._taken = taken
        self._replay = replay

    def wrong(self, refused: Sequence[Job]) -> int:
        base = _Clocked(SimEngine(self._replay.limits, self._replay.model), self._taken, self._replay, 0.0, 0)
        waiting = sorted(refused, key=lambda job: job.arrived_ms)
        branches: list[tuple[Job, _Clocked]] = []
        going = True
        while going or waiting:
            while waiting and (waiting[0].arrived_ms <= base.now_ms or not going):
                branches.append((waiting.pop(0), base.copy()))
            going = base.step()
        return sum(_all_well(job, branch, base.kept) for job, branch in branches)


def _all_well(job: Job, branch: _Clocked, kept: dict[str, bool]) -> bool:
    enter(branch.engine, job)
    branch.now_ms = max(branch.now_ms, job.arrived_ms)
    met: set[str] | None = None
    seen = 0
    while branch.step():
        if len(branch.kept) > seen:
            seen = len(branch.kept)
            if any(kept.get(name, False) and not well for name, well in branch.kept.items()):
                return False
            if met is None and job.request_id in branch.kept:
                if not branch.kept[job.request_id]:
                    return False
                met = {*branch.engine.running, *branch.engine.waiting}
            if met is not None and met <= branch.kept.keys():
                return True
    return branch.kept.get(job.request_id, False)


def _pace(taken: Sequence[Job], by_id: dict[str, RequestRecord], replay: Replay) -> float:
    """How much slower than the profile the engine really was: recorded over simulated time between tokens."""
    simulated = _Clocked(SimEngine(replay.limits, replay.model), taken, replay, 0.0, 0)
    while simulated.step():
        pass
    recorded = [by_id[job.request_id].itl_ms for job in taken]
    measured = [itl for itl in recorded if itl is not None]
    if not measured or not simulated.itl_ms:
        return 1.0
    return min(3.0, max(0.5, median(measured) / median(simulated.itl_ms)))


def _slowed(model: StepModel, pace: float) -> StepModel:
    return StepModel.from_coefficients([c * pace for c in model.coefficients])
