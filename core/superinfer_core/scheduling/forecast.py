"""What is still to come: the recent load of every rank, so that admission leaves room for the higher ones.

Promise: bounded memory (at most `MAX_RANKS` ranks); a snapshot is frozen. ArrivalForecast has one owner
(the sidecar, the simulator); not thread-safe.

Every arrival counts, admitted or not: what was refused would have come too. Load is an exponentially
decayed mean over the window.
"""

from dataclasses import dataclass
from math import exp, isfinite
from typing import Final

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.state import RequestState
from superinfer_core.slo import Rank

MAX_RANKS: Final = 64
EXPECTED_SEQS: Final = 0.25
"""Work of a rank is expected while its recent load would hold at least so many places."""


@dataclass(frozen=True, slots=True)
class RankLoad:
    """Recent load of one rank.

    Attributes:
        rank: whose.
        share: prefill milliseconds brought per millisecond.
        seqs: places its requests hold on average (Little: arrivals per ms times ms held).
        rate: arrivals per millisecond.
        budget_left: mean error budget left of its contracts.
        itl_ms: the tightest ITL target of its recent arrivals.
        decode: decode milliseconds brought per millisecond, beyond what every step costs.
    """

    rank: Rank
    share: float
    seqs: float
    rate: float = 0.0
    budget_left: float = 1.0
    itl_ms: float = float("inf")
    decode: float = 0.0


@dataclass(frozen=True, slots=True)
class ForecastSnapshot:
    """Load per rank at one instant, highest rank first.

    Attributes:
        loads: per rank.
        tolerance_ms: the shortest wait a recent arrival could bear before its first token; what a step may
            not exceed.
    """

    loads: tuple[RankLoad, ...] = ()
    tolerance_ms: float = float("inf")

    def above(self, rank: Rank) -> tuple[float, float]:
        """(share, seqs) of all ranks strictly higher than `rank`."""
        share = seqs = 0.0
        key = (rank.tier_rank, rank.negated_priority)
        for load in self.loads:
            if (load.rank.tier_rank, load.rank.negated_priority) >= key:
                break
            share += load.share
            seqs += load.seqs
        return share, seqs

    def down_to(self, rank: Rank) -> float:
        """Prefill time per time that `rank` and all higher ones bring."""
        return sum(load.share for load in self.loads if not load.rank > rank)

    def decode_above(self, rank: Rank) -> float:
        """Decode time per time that all ranks strictly higher than `rank` bring."""
        return sum(load.decode for load in self.loads if load.rank < rank)

    def tightest_ms(self, rank: Rank) -> float:
        """The tightest ITL target of the ranks above `rank` that are expected; infinite for none."""
        expected = (x.itl_ms for x in self.loads if x.rank < rank and x.seqs >= EXPECTED_SEQS)
        return min(expected, default=float("inf"))

    def mean_budget_left(self, rank: Rank) -> float:
        """Error budget left over the recent arrivals of `rank`; 1 where nothing is known."""
        return next((load.budget_left for load in self.loads if load.rank == rank), 1.0)

    def size(self, rank: Rank, work_ms: float, hold_ms: float) -> float:
        """How large a request is beside the usual one of its rank; 1 where nothing is known."""
        for load in self.loads:
            if load.rank == rank and load.rate > 0 and load.share > 0 and load.seqs > 0:
                return 0.5 * (work_ms * load.rate / load.share + hold_ms * load.rate / load.seqs)
        return 1.0


NO_FORECAST: Final = ForecastSnapshot()


def work_of(request: RequestState, model: StepModel, places: int) -> tuple[float, float]:
    """(prefill ms, ms a place is held) of a request that has not started, on an engine of `places` in use.

    A step of a busy engine spends about as much on others' prefill as on decoding.
    """
    work = model.prefill_work_ms(request.prefill_left_tokens, request.computed_tokens)
    left = max(1, request.expected_output_tokens - request.output_tokens)
    return work, request.places * (work + left * 2.0 * model.step_ms(decode_seqs=places))


def decode_work_ms(request: RequestState, model: StepModel) -> float:
    """Decode time a request still brings, beyond what every step costs."""
    left = max(1, request.expected_output_tokens - request.output_tokens)
    context = request.prompt_tokens + request.output_tokens + 0.5 * left
    return request.places * left * (model.per_decode_seq_ms + model.per_decode_context_token_ms * context)


class ArrivalForecast:
    """Learns from arrivals; snapshots feed decisions."""

    __slots__ = ("_last_ms", "_loads", "_pace", "_tolerance", "_window_ms")

    def __init__(self, window_ms: float = 8000.0) -> None:
        self._window_ms = max(1.0, window_ms)
        self._loads: dict[Rank, list[float]] = {}
        self._tolerance: tuple[float, float] = (float("inf"), 0.0)
        self._pace: dict[Rank, tuple[float, float]] = {}
        self._last_ms = 0.0

    def observe(
        self,
        now_ms: float,
        rank: Rank,
        work_ms: float,
        *,
        hold_ms: float = 0.0,
        tolerance_ms: float = float("inf"),
        count: float = 1.0,
        budget_left: float = 1.0,
        itl_ms: float = float("inf"),
        decode_ms: float = 0.0,
    ) -> None:
        """Count one arrival.

        Args:
            now_ms: when.
            rank: its rank.
            work_ms: prefill time it brings.
            hold_ms: how long it will hold a place in the batch.
            tolerance_ms: its TTFT target less its own prefill.
            count: weight of the arrival, where it is spread over several executors.
            budget_left: what its contract's error budget has left.
            itl_ms: its ITL target.
            decode_ms: decode time it brings, beyond what every step costs.
        """
        self._decay(now_ms)
        if rank not in self._loads and len(self._loads) >= MAX_RANKS:
            rank = Rank(rank.tier_rank) if Rank(rank.tier_rank) in self._loads else next(iter(self._loads))
        load = self._loads.setdefault(rank, [0.0, 0.0, 0.0, 0.0, 0.0])
        if isfinite(work_ms) and work_ms > 0:
            load[0] += work_ms / self._window_ms
        if isfinite(hold_ms) and hold_ms > 0:
            load[1] += hold_ms / self._window_ms
        if isfinite(decode_ms) and decode_ms > 0:
            load[4] += decode_ms / self._window_ms
        if isfinite(count) and count > 0:
            load[2] += count / self._window_ms
            load[3] += min(1.0, max(0.0, budget_left)) * count / self._window_ms
        tightest, seen = self._pace.get(rank, (float("inf"), now_ms))
        if 0 < itl_ms <= tightest or now_ms - seen > 4 * self._window_ms:
            self._pace[rank] = (itl_ms if itl_ms > 0 else float("inf"), now_ms)
        least, at = self._tolerance
        if 0 < tolerance_ms <= least or now_ms - at > 4 * self._window_ms:
            self._tolerance = (tolerance_ms, now_ms)

    def arrive(
        self, now_ms: float, request: RequestState, model: StepModel, places: int, count: float = 1.0
    ) -> None:
        """Count the arrival of `request`, admitted or not, weighted by `count`."""
        work, hold = work_of(request, model, places)
        slo = request.slo
        timely = slo.ttft_ms is not None and not slo.best_effort
        self.observe(
            now_ms,
            slo.rank,
            work * count,
            hold_ms=hold * count,
            tolerance_ms=(slo.ttft_ms or 0.0) - work - model.base_ms if timely else float("inf"),
            count=count,
            budget_left=slo.budget_left,
            itl_ms=slo.itl_ms if slo.itl_ms is not None and not slo.best_effort else float("inf"),
            decode_ms=count * decode_work_ms(request, model),
        )

    def snapshot(self, now_ms: float) -> ForecastSnapshot:
        """Load per rank as of `now_ms`."""
        fade = exp(-min(700.0, max(0.0, now_ms - self._last_ms) / self._window_ms))
        loads = tuple(
            RankLoad(
                rank,
                load[0] * fade,
                load[1] * fade,
                load[2] * fade,
                load[3] / load[2] if load[2] > 0 else 1.0,
                self._pace.get(rank, (float("inf"), 0.0))[0],
                load[4] * fade,
            )
            for rank, load in sorted(self._loads.items())
        )
        return ForecastSnapshot(loads, self._tolerance[0])

    def _decay(self, now_ms: float) -> None:
        if now_ms <= self._last_ms:
            return
        fade = exp(-min(700.0, (now_ms - self._last_ms) / self._window_ms))
        self._last_ms = now_ms
        for load in self._loads.values():
            load[0] *= fade
            load[1] *= fade
            load[2] *= fade
            load[3] *= fade
            load[4] *= fade
