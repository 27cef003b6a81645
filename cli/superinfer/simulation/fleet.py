"""Many engines, one clock: arrivals, admission, routing, steps.

Promise: deterministic for a seed. As in the product the best executor is asked first, at most one more, then
the request is refused. Which is best is judged by the work in queue and batch alone, among eight drawn at
random: more simply than the ingress does, which goes by what executors report
(`superinfer_core.scheduling.routing`).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from superinfer.simulation.contracts import ContractTally
from superinfer.simulation.engine import EngineLimits, Live, SimEngine, lateness_ms, with_contract_state
from superinfer.simulation.workload import Job
from superinfer_core.prediction.lengths import OutputLengths
from superinfer_core.prediction.step_model import UNPROFILED, StepModel
from superinfer_core.scheduling.admission import admit
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import ArrivalForecast
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.slo import RequestSlo

FORECAST_REFRESH_MS = 50.0


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """How a run is set up.

    Attributes:
        executors: engines.
        limits: of each.
        truth: what steps really take.
        belief: what decisions think they take; None is the truth.
        noise: relative standard deviation of step times.
        factor: what decisions multiply predicted totals by, whatever the quantile.
        admission: ask `core.admit`; off for baselines.
        known_lengths: decisions know each answer's length (max_tokens with ignore_eos); else a sketch per
            contract capped at `max_tokens`.
        seed: of noise and routing.
    """

    executors: int = 1
    limits: EngineLimits = field(default_factory=EngineLimits)
    truth: StepModel = UNPROFILED
    belief: StepModel | None = None
    noise: float = 0.0
    factor: float = 1.0
    admission: bool = True
    known_lengths: bool = True
    max_tokens: int = 1024
    seed: int = 1


@dataclass(slots=True)
class Outcome:
    """What became of one request."""

    job: Job
    admitted: bool
    kept: bool = False
    refusal: str | None = None
    harm: bool = False
    first_ms: float | None = None
    last_ms: float | None = None
    predicted_ttft_ms: float | None = None
    preemptions: int = 0
    executor: int = 0


@dataclass(slots=True)
class Run:
    """Outcome of a run."""

    outcomes: dict[str, Outcome]
    end_ms: float
    tokens: int
    steps: int
    preempted: int


class Fleet:
    """The simulated system; one use."""

    def __init__(
        self,
        jobs: list[Job],
        policy: SchedulingPolicy,
        settings: FleetSettings,
        *,
        decisions: dict[str, bool] | None = None,
    ) -> None:
        self.jobs = jobs
        self.policy = policy
        self.settings = settings
        self.decisions = decisions
        self.engines = [SimEngine(settings.limits, settings.truth) for _ in range(settings.executors)]
        self.busy = [False] * settings.executors
        self.outcomes: dict[str, Outcome] = {}
        self.tally = ContractTally(max((j.arrived_ms for j in jobs), default=0.0))
        self.lengths = OutputLengths()
        self.rnd = random.Random(settings.seed)
        self.forecasts = [ArrivalForecast() for _ in range(settings.executors)]
        self.contexts = [self._context(i, 0.0) for i in range(settings.executors)]
        self.refreshed = [0.0] * settings.executors
        self.events: list[tuple[float, int]] = []
        self.now = 0.0

    def run(self, told: Callable[[int], None] | None = None) -> Run:
        """Serve every job; `told` hears how many have arrived."""
        jobs = sorted(self.jobs, key=lambda j: (j.arrived_ms, j.request_id))
        i, n = 0, len(jobs)
        while i < n or self.events:
            if self.events and (i >= n or self.events[0][0] <= jobs[i].arrived_ms):
                self.now, e = heappop(self.events)
                self._step_done(e)
            else:
                self.now = max(self.now, jobs[i].arrived_ms)
                touched = self._arrive(jobs[i])
                i += 1
                while i < n and jobs[i].arrived_ms <= self.now:
                    touched |= self._arrive(jobs[i])
                    i += 1
                if told is not None:
                    told(i)
                for e in sorted(touched):
                    if not self.busy[e]:
                        self._start(e)
        return Run(
            self.outcomes,
            self.now,
            sum(e.tokens for e in self.engines),
            sum(e.steps for e in self.engines),
            sum(e.preempted for e in self.engines),
        )

    def _context(self, e: int, now_ms: float) -> DecisionContext:
        belief = self.settings.belief or self.settings.truth
        factor = self.settings.factor
        return DecisionContext(belief, self.policy, lambda _q: factor, self.forecasts[e].snapshot(now_ms))

    def _refresh(self, e: int) -> DecisionContext:
        if self.now - self.refreshed[e] >= FORECAST_REFRESH_MS:
            self.refreshed[e] = self.now
            self.contexts[e] = self._context(e, self.now)
        return self.contexts[e]

    def _arrive(self, job: Job) -> set[int]:
        holds, left = self.tally.state(job.slo.contract, self.now)
        slo = with_contract_state(job.slo, holds=holds, budget_left=left)
        expected = self._expected(job)
        self.tally.offered(job.slo.contract, job.tier)
        outcome = self.outcomes[job.request_id] = Outcome(job, admitted=False)
        ranked = self._ranked()
        model = self.settings.belief or self.settings.truth
        seen = Live(job, slo, expected).as_state()
        for e in ranked:
            self.forecasts[e].arrive(
                self.now, seen, model, self.settings.limits.max_num_seqs, 1.0 / len(ranked)
            )
            if self._admit(e, job, slo, expected, outcome):
                return {e}
        self.tally.refused(job.slo.contract)
        return set()

    def _admit(self, e: int, job: Job, slo: RequestSlo, expected: int, outcome: Outcome) -> bool:
        engine = self.engines[e]
        live = Live(job, slo, expected)
        if self.decisions is not None:
            accepted = self.decisions.get(job.request_id, True)
        elif not self.settings.admission:
            accepted = True
        else:
            answer = admit(live.as_state(), engine.state(), self.now, self._refresh(e))
            accepted = answer.admitted
            outcome.predicted_ttft_ms = answer.prediction.ttft_ms
            if answer.refusal is not None:
                outcome.refusal, outcome.harm = answer.refusal.code.value, answer.refusal.harm
        if accepted:
            outcome.admitted, outcome.executor, outcome.refusal = True, e, None
            engine.enqueue(live)
        return accepted

    def _ranked(self) -> list[int]:
        engines = self.engines
        if len(engines) == 1:
            return [0]
        # An ingress with many executors compares a few of them, not all.
        few = min(8, len(engines))
        picks = self.rnd.sample(range(len(engines)), few)

        def load(e: int) -> tuple[float, int]:
            engine = engines[e]
            queued = sum(r.job.prompt_tokens for r in engine.waiting.values())
            return (queued + 40.0 * len(engine.running), e)

        return sorted(picks, key=load)[:2]

    def _expected(self, job: Job) -> int:
        if self.settings.known_lengths:
            return job.output_tokens
        cap = max(self.settings.max_tokens, job.output_tokens)
        return self.lengths.expected(job.slo.contract, 0.9, 0, cap)

    def _start(self, e: int) -> None:
        engine = self.engines[e]
        facts = engine.begin_step(self.now, self._refresh(e))
        if facts is None:
            self.busy[e] = False
            return
        step = facts.step_ms
        if self.settings.noise:
            step *= max(0.5, 1.0 + self.rnd.gauss(0.0, self.settings.noise))
        self.busy[e] = True
        heappush(self.events, (self.now + step, e))

    def _step_done(self, e: int) -> None:
        engine = self.engines[e]
        for live in engine.end_step(self.now):
            self.lengths.observe(live.job.slo.contract, live.output)
            self._finish(live, None)
        if engine.idle:
            self.busy[e] = False
        else:
            self._start(e)

    def _finish(self, live: Live, refusal: str | None) -> None:
        outcome = self.outcomes[live.job.request_id]
        outcome.first_ms, outcome.last_ms = live.first_ms, live.last_ms
        outcome.preemptions = live.preemptions
        outcome.refusal = refusal
        outcome.kept = refusal is None and lateness_ms(live) <= 1e-6
        if refusal is None:
            self.tally.served(live.job.slo.contract, kept=outcome.kept)
        else:
            self.tally.refused(live.job.slo.contract)
