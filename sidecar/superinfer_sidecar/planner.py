"""What the sidecar knows about its executor, and the core decisions taken with it.

One owner (the Desk), one thread. It learns from step facts, finished answers and arrivals, and hands core's
pure functions one context; it keeps no requests.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from superinfer_core.prediction.lengths import OutputLengths
from superinfer_core.prediction.online import OnlineStepModel
from superinfer_core.prediction.profile import Profile
from superinfer_core.prediction.residuals import Residuals
from superinfer_core.prediction.step_model import UNPROFILED, StepFacts
from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.scheduling.admission import Admission, Prediction, admit_all
from superinfer_core.scheduling.context import DecisionContext
from superinfer_core.scheduling.forecast import ArrivalForecast
from superinfer_core.scheduling.order import order
from superinfer_core.scheduling.policy import SchedulingPolicy
from superinfer_core.scheduling.slack import slack_ms
from superinfer_core.scheduling.state import EngineState, RequestState
from superinfer_core.scheduling.step import plan_step
from superinfer_core.slo import RequestSlo
from superinfer_proto.v1 import engine_pb2, work_pb2

_LOG = logging.getLogger(__name__)

REPORT_QUANTILE: Final = 0.9
_LEARN_EVERY_MS: Final = 2.0
_STEPS_TO_TRUST: Final = 50
_MOST_OVERHEAD_MS: Final = 1000.0
_LOGGED_FAULTS: Final = 20
_UNDECIDED: Final = Admission(
    admitted=False,
    prediction=Prediction(0.0, 0.0, 0.0, 0.0),
    refusal=Refusal(RefusalCode.ENGINE_FAILED, "this executor could not decide about the request"),
)
_CONTEXT_FRESH_MS: Final = 20.0


class Planner:
    """Prediction and decisions of one executor."""

    def __init__(
        self, policy: SchedulingPolicy, profile: Profile | None, *, learn_overhead: bool = True
    ) -> None:
        self.policy = policy
        self.profile = profile
        self.steps = OnlineStepModel(profile.steps if profile else UNPROFILED)
        self.lengths = OutputLengths()
        self.max_num_seqs = 1
        self.faults = 0
        self._learn_overhead = learn_overhead
        self._overheads: dict[int, Residuals] = {}
        self._all_overheads = Residuals()
        for quantile in (0.5, REPORT_QUANTILE, 0.99):
            self.steps.coverage(quantile)  # scored from the first step on
        self._forecast = ArrivalForecast()
        self._limits = EngineState(max_num_seqs=1, max_step_tokens=2048, kv_total_tokens=1 << 20)
        self._context: DecisionContext | None = None
        self._context_ms = 0.0
        self._learned_ms = 0.0

    @property
    def profiled(self) -> bool:
        """Whether predictions start from a measured profile."""
        return self.profile is not None

    @property
    def trusted(self) -> bool:
        """Whether predictions rest on measurements: a profile, or enough steps seen."""
        return self.profiled or self.steps.observed >= _STEPS_TO_TRUST

    def on_engine(self, info: engine_pb2.EngineInfo) -> None:
        """Take the limits of a (new) engine."""
        self.max_num_seqs = max(1, info.max_num_seqs)
        self._limits = EngineState(
            max_num_seqs=self.max_num_seqs,
            max_step_tokens=max(1, info.max_num_batched_tokens),
            kv_total_tokens=max(1, info.kv_total_tokens),
        )

    def context(self, now_ms: float) -> DecisionContext:
        """The context of decisions now; rebuilt when it is older than a few steps."""
        context = self._context
        if context is None or now_ms - self._context_ms > _CONTEXT_FRESH_MS:
            context = self._context = DecisionContext(
                model=self.steps.model,
                policy=self.policy,
                factor=partial(self.steps.factor, idle_ms=max(0.0, now_ms - self._learned_ms)),
                forecast=self._forecast.snapshot(now_ms),
            )
            self._context_ms = now_ms
        return context

    def state(self, requests: Iterable[RequestState]) -> EngineState:
        """The engine's limits with these requests."""
        limits = self._limits
        return EngineState(
            limits.max_num_seqs, limits.max_step_tokens, limits.kv_total_tokens, tuple(requests)
        )

    def expected_output_tokens(self, slo: RequestSlo, generated: int, cap: int) -> int:
        """Predicted total output at the request's quantile."""
        return self.lengths.expected(slo.contract, slo.quantile, generated, max(1, cap))

    def admit(
        self, candidates: Sequence[RequestState], requests: Sequence[RequestState], now_ms: float
    ) -> tuple[tuple[Admission, ...], float]:
        """Core's answers for requests that arrived together, given everything admitted before.

        Also answers the margin in their predicted first tokens. A decision that fails refuses those it was
        about: the executor and everyone else go on.
        """
        try:
            context = self._with_overhead(self.context(now_ms), candidates)
            # Core leaves the margin out where nothing else is there.
            contended = len(requests) + len(candidates) > 1
            margin_ms = context.policy.admission_margin_ms if contended else 0.0
            return admit_all(candidates, self.state(requests), now_ms, context), margin_ms
        except Exception:  # noqa: BLE001 (logged and counted by _fault)
            self._fault("admission")
            return (_UNDECIDED,) * len(candidates), 0.0

    def order(self, requests: Iterable[RequestState], now_ms: float) -> list[RequestState]:
        """Who goes first; in order of arrival where the decision fails."""
        waiting = list(requests)
        try:
            return order(waiting, now_ms, self.context(now_ms))
        except Exception:  # noqa: BLE001 (logged and counted by _fault)
            self._fault("order")
            return waiting

    def preempting(self, requests: Iterable[RequestState], now_ms: float) -> list[str]:
        """Requests the engine would displace another one for, if it had them."""
        try:
            plan = plan_step(self.state(requests), now_ms, self.context(now_ms))
        except Exception:  # noqa: BLE001 (logged and counted by _fault)
            self._fault("plan")
            return []
        return [preempt.for_id for preempt in plan.preempt]

    def overhead_ms(self, slo: RequestSlo) -> float:
        """What first tokens of this tier (of all, before enough of it were seen) take beyond their steps."""
        overheads = self._overheads.get(slo.rank.tier_rank)
        if overheads is None or not overheads.known:
            overheads = self._all_overheads
        return min(_MOST_OVERHEAD_MS, max(0.0, overheads.quantile(0.5)))

    def learn_first_token(self, slo: RequestSlo, late_ms: float) -> None:
        """Learn by how much a first token came later than its steps were predicted to take."""
        if self._learn_overhead:
            self._overheads.setdefault(slo.rank.tier_rank, Residuals()).observe(late_ms)
            self._all_overheads.observe(late_ms)

    def _with_overhead(self, context: DecisionContext, candidates: Sequence[RequestState]) -> DecisionContext:
        """The context with the overhead of the candidates' tiers in its margin: the largest of them."""
        margin_ms = max((self.overhead_ms(candidate.slo) for candidate in candidates), default=0.0)
        if margin_ms <= context.policy.admission_margin_ms:
            return context
        return replace(context, policy=replace(context.policy, admission_margin_ms=margin_ms))

    def _fault(self, decision: str) -> None:
        """Count a decision that failed; the log gets the first ones with their cause."""
        self.faults += 1
        if self.faults <= _LOGGED_FAULTS:
            _LOG.exception("a decision failed", extra={"decision": decision})

    def slack_ms(self, request: RequestState, now_ms: float) -> float:
        """Slack of one request."""
        return slack_ms(request, now_ms, self.context(now_ms))

    def arrive(self, request: RequestState, now_ms: float) -> float:
        """Learn of an arrival, admitted or not; answers the engine time it brings."""
        model = self.steps.model
        seqs = self.max_num_seqs
        prefill_ms = model.prefill_work_ms(request.prefill_left_tokens)
        step_ms = model.step_ms(decode_seqs=seqs)
        tokens = max(1, request.expected_output_tokens - request.output_tokens)
        self._forecast.arrive(now_ms, request, model, seqs)
        return prefill_ms + request.places * tokens * step_ms / seqs

    def learn_step(self, facts: work_pb2.StepFacts, now_ms: float) -> None:
        """Learn from one step; the many of a fast engine are sampled, they say the same."""
        if now_ms - self._learned_ms < _LEARN_EVERY_MS:
            return
        self._learned_ms = now_ms
        self.steps.observe(
            StepFacts(
                facts.step_ms,
                facts.prefill_tokens,
                facts.prefill_context_tokens2,
                facts.decode_seqs,
                facts.decode_context_tokens,
            )
        )

    def longest_step_ms(self, max_model_len: int) -> float:
        """Predicted time of the longest step there could be: a full batch, and a full share of prefill."""
        limits = self._limits
        context = min(limits.kv_total_tokens, limits.max_num_seqs * max(1, max_model_len))
        step_ms = self.steps.model.step_ms(
            decode_seqs=limits.max_num_seqs,
            decode_context_tokens=context,
            prefill_tokens=limits.max_step_tokens,
            prefill_context_tokens2=limits.max_step_tokens * max(1, max_model_len),
        )
        return step_ms * max(1.0, self.steps.factor(REPORT_QUANTILE))

    def backlog_ms(self, prefill_tokens: int, queued: int, running_tokens_left: int) -> float:
        """Predicted time until work queued now would start: the prefill ahead, and a place to be had."""
        model = self.steps.model
        wait_ms = model.prefill_work_ms(prefill_tokens)
        if queued:
            wait_ms += running_tokens_left / self.max_num_seqs * model.step_ms(decode_seqs=self.max_num_seqs)
        return wait_ms
