"""Was the promise kept: per request, and per contract over a rolling window.

A request keeps its contract when it was served to the end and every target it carried held, jitter included.
A contract is fulfilled over its window when every percentile holds over the admitted requests and, where it
promises availability, served / (offered within quota) holds too. What counts against availability is
`refusal.COUNTS_AGAINST_AVAILABILITY`; bad requests, over-quota and hang-ups count neither way. A window in
which something was offered and nothing admitted is not fulfilled: refusing everything keeps nothing.

Percentiles are counted against the contract's own targets; tighter ones from a request's headers decide
`kept` for that request only. A degraded or fallen-back request was served, so it counts for availability, but
it was not admitted under the contract, so it is in no percentile.

Memory is fixed: 60 buckets of counts per contract. `now_ms` is passed in. A ContractWindow belongs to one
event loop or lock; attainments and counts are immutable.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from superinfer_core.contract.budget import Budget, WindowState, budget_left, error_budget
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.request_slo import request_slo
from superinfer_core.refusal import COUNTS_AGAINST_AVAILABILITY, RefusalCode
from superinfer_core.slo import Metric, Objective, RequestSlo

BUCKETS: Final = 60
_DEFAULT_JITTER_PERCENT: Final = 99.0


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How one request ended, as the ingress saw it.

    Attributes:
        contract: "namespace/serviceID", or "".
        admitted: it was accepted under its contract (False: refused, degraded or fallen back).
        ttft_ms, e2e_ms: from arrival at the ingress; None where it never came that far.
        itl_ms: (last - first token) / (n - 1); None with fewer than two tokens.
        jitter_ms: greatest minus least gap between tokens; None with fewer than three tokens.
        output_tokens: tokens delivered.
        refusal: why it was refused or broke; None if it was served.
        cancelled: the client hung up before the end.
        degraded: served without its contract's promise (best effort or fallback).
    """

    contract: str = ""
    admitted: bool = True
    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None
    jitter_ms: float | None = None
    output_tokens: int = 0
    refusal: RefusalCode | None = None
    cancelled: bool = False
    degraded: bool = False

    @property
    def served(self) -> bool:
        """A complete answer was delivered."""
        return self.refusal is None and not self.cancelled


def kept(outcome: RequestOutcome, slo: RequestSlo) -> bool:
    """Every promise this request carried held. A refused, broken, cancelled or degraded one kept nothing."""
    if not outcome.served or not outcome.admitted or outcome.degraded:
        return False
    return (
        _within(outcome.ttft_ms, slo.ttft_ms)
        and _within(outcome.itl_ms, slo.itl_ms)
        and _within(outcome.e2e_ms, slo.e2e_ms)
        and _within(outcome.jitter_ms, slo.max_jitter_ms)
    )


def jitter_ms(gaps_ms: Iterable[float]) -> float | None:
    """Greatest minus least gap between tokens; None with fewer than two gaps."""
    least, greatest, count = float("inf"), float("-inf"), 0
    for gap in gaps_ms:
        least, greatest, count = min(least, gap), max(greatest, gap), count + 1
    return greatest - least if count >= 2 else None


def _within(measured: float | None, target: float | None) -> bool:
    # A served request without a figure had nothing to measure (one token has no gaps).
    return target is None or measured is None or measured <= target


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Counts of one contract over a span of time; two of them add up.

    Attributes:
        offered: asked for within quota, hang-ups and bad requests excluded.
        served: answered to the end.
        admitted: accepted under the contract and not hung up on: what percentiles are taken over.
        kept: of the admitted, every objective and jitter held.
        degraded, cancelled, excluded: served without the promise; hung up; bad or over quota.
        misses: per objective, in the contract's order; last the misses of jitter.
    """

    offered: int = 0
    served: int = 0
    admitted: int = 0
    kept: int = 0
    degraded: int = 0
    cancelled: int = 0
    excluded: int = 0
    misses: tuple[int, ...] = ()

    def __add__(self, other: "WindowCounts") -> "WindowCounts":
        """The counts of both, e.g. of two ingress replicas."""
        longest = max(len(self.misses), len(other.misses))
        mine = self.misses + (0,) * (longest - len(self.misses))
        theirs = other.misses + (0,) * (longest - len(other.misses))
        return WindowCounts(
            offered=self.offered + other.offered,
            served=self.served + other.served,
            admitted=self.admitted + other.admitted,
            kept=self.kept + other.kept,
            degraded=self.degraded + other.degraded,
            cancelled=self.cancelled + other.cancelled,
            excluded=self.excluded + other.excluded,
            misses=tuple(a + b for a, b in zip(mine, theirs, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class ObjectiveAttainment:
    """One objective over the window."""

    objective: Objective
    budget: Budget


@dataclass(frozen=True, slots=True)
class Attainment:
    """A contract over its window.

    Attributes:
        counts: what it is computed from.
        objectives: in the contract's order.
        jitter, availability: None where not promised.
        fulfilled: everything promised held so far.
        holds: the window can still be saved, or does not need to be.
        budget_left: least over everything promised.
        covered: share of the window that has been observed.
    """

    counts: WindowCounts
    objectives: tuple[ObjectiveAttainment, ...]
    jitter: Budget | None
    availability: Budget | None
    fulfilled: bool
    holds: bool
    budget_left: float
    covered: float


def attainment_of(contract: EffectiveContract, counts: WindowCounts, *, covered: float = 1.0) -> Attainment:
    """What counts mean for a contract; also for counts added up over ingress replicas."""
    misses = counts.misses + (0,) * (len(contract.objectives) + 1 - len(counts.misses))
    objectives = tuple(
        ObjectiveAttainment(
            objective,
            error_budget(objective.percentile, considered=counts.admitted, missed=missed, covered=covered),
        )
        for objective, missed in zip(contract.objectives, misses, strict=False)
    )
    jitter = availability = None
    if contract.max_jitter_ms is not None:
        percent = _jitter_percent(contract)
        jitter = error_budget(
            percent, considered=counts.admitted, missed=misses[len(contract.objectives)], covered=covered
        )
    if contract.availability is not None:
        availability = error_budget(
            contract.availability,
            considered=counts.offered,
            missed=counts.offered - counts.served,
            covered=covered,
        )
    budgets = [o.budget for o in objectives] + [b for b in (jitter, availability) if b is not None]
    kept_nothing = counts.offered > 0 and counts.admitted == 0 and counts.degraded == 0
    return Attainment(
        counts=counts,
        objectives=objectives,
        jitter=jitter,
        availability=availability,
        fulfilled=all(b.met for b in budgets) and not kept_nothing,
        holds=all(b.holds for b in budgets),
        budget_left=min((b.left for b in budgets), default=1.0),
        covered=covered,
    )


def _jitter_percent(contract: EffectiveContract) -> float:
    """Jitter is promised per request; over a window it is held to the contract's strictest percentile."""
    return max((o.percentile for o in contract.objectives), default=_DEFAULT_JITTER_PERCENT)


_OFFERED, _SERVED, _ADMITTED, _KEPT, _DEGRADED, _CANCELLED, _EXCLUDED, _MISSES = range(8)


class ContractWindow:
    """Rolling counts of one contract: 60 buckets and their running total."""

    __slots__ = ("_bucket_ms", "_buckets", "_contract", "_first_ms", "_head", "_state", "_total", "_width")

    def __init__(self, contract: EffectiveContract) -> None:
        self._contract = contract
        self._bucket_ms = contract.window_s * 1000.0 / BUCKETS
        self._width = _MISSES + len(contract.objectives) + 1
        self._buckets: list[list[int] | None] = [None] * BUCKETS
        self._total = [0] * self._width
        self._head: int | None = None
        self._first_ms: float | None = None
        self._state: WindowState | None = None

    @property
    def contract(self) -> EffectiveContract:
        """The contract whose targets are counted."""
        return self._contract

    def record(self, now_ms: float, outcome: RequestOutcome, slo: RequestSlo | None = None) -> bool:
        """Count one finished request; True if it kept everything it was promised.

        `slo` is what the request carried; without it, it is held to the contract's own targets.
        """
        self._advance(now_ms)
        if self._first_ms is None:
            self._first_ms = now_ms
        self._state = None
        promise = slo if slo is not None else request_slo(self._contract)
        was_kept = kept(outcome, promise)
        for slot in self._slots_of(outcome, was_kept=was_kept):
            self._bump(slot)
        return was_kept

    def counts(self, now_ms: float) -> WindowCounts:
        """Counts of the window that ends now."""
        self._advance(now_ms)
        offered, served, admitted, kept_count, degraded, cancelled, excluded = self._total[:_MISSES]
        misses = tuple(self._total[_MISSES:])
        return WindowCounts(offered, served, admitted, kept_count, degraded, cancelled, excluded, misses)

    def attainment(self, now_ms: float) -> Attainment:
        """The contract over the window that ends now."""
        return attainment_of(self._contract, self.counts(now_ms), covered=self.covered(now_ms))

    def state(self, now_ms: float) -> WindowState:
        """What the requests arriving now carry along; cheap, and cached while nothing was recorded."""
        self._advance(now_ms)
        if self._state is None:
            self._state = self._state_at(now_ms)
        return self._state

    def adopt(self, contract: EffectiveContract) -> "ContractWindow":
        """The window to go on with after an edit: this one, unless what it counts has changed."""
        before = self._contract
        if (before.objectives, before.window_s) != (contract.objectives, contract.window_s):
            return ContractWindow(contract)
        if before.max_jitter_ms != contract.max_jitter_ms:
            return ContractWindow(contract)
        self._contract, self._state = contract, None
        return self

    def covered(self, now_ms: float) -> float:
        """Share of the window since the first request was recorded."""
        if self._first_ms is None:
            return 1.0
        return min(1.0, max(0.0, now_ms - self._first_ms) / (self._contract.window_s * 1000.0))

    def _state_at(self, now_ms: float) -> WindowState:
        contract, total, covered = self._contract, self._total, self.covered(now_ms)
        least, holds = 1.0, True
        admitted = total[_ADMITTED]
        promises = [(o.percentile, admitted, total[_MISSES + i]) for i, o in enumerate(contract.objectives)]
        if contract.max_jitter_ms is not None:
            promises.append((_jitter_percent(contract), admitted, total[-1]))
        if contract.availability is not None:
            promises.append((contract.availability, total[_OFFERED], total[_OFFERED] - total[_SERVED]))
        for percent, considered, missed in promises:
            left, can_hold = budget_left(percent, considered=considered, missed=missed, covered=covered)
            least, holds = min(least, left), holds and can_hold
        return WindowState(holds=holds, budget_left=least)

    def _slots_of(self, outcome: RequestOutcome, *, was_kept: bool) -> list[int]:
        if outcome.cancelled:
            return [_CANCELLED]
        if outcome.refusal is not None and outcome.refusal not in COUNTS_AGAINST_AVAILABILITY:
            return [_EXCLUDED]
        slots = [_OFFERED]
        if outcome.served:
            slots.append(_SERVED)
        if outcome.degraded:
            return [*slots, _DEGRADED] if outcome.served else slots
        if not outcome.admitted:
            return slots
        slots.append(_ADMITTED)
        if was_kept:
            slots.append(_KEPT)
        objectives = self._contract.objectives
        slots += [_MISSES + i for i, o in enumerate(objectives) if not _objective_held(outcome, o)]
        if not _within(outcome.jitter_ms, self._contract.max_jitter_ms):
            slots.append(_MISSES + len(objectives))
        return slots

    def _bump(self, slot: int) -> None:
        index = (self._head or 0) % BUCKETS
        bucket = self._buckets[index]
        if bucket is None:
            bucket = self._buckets[index] = [0] * self._width
        bucket[slot] += 1
        self._total[slot] += 1

    def _advance(self, now_ms: float) -> None:
        head = int(now_ms // self._bucket_ms)
        if self._head is None or head <= self._head:
            self._head = head if self._head is None else self._head
            return
        for passed in range(self._head + 1, min(head, self._head + BUCKETS) + 1):
            expired = self._buckets[passed % BUCKETS]
            if expired is not None:
                for slot, count in enumerate(expired):
                    self._total[slot] -= count
                self._buckets[passed % BUCKETS] = None
        self._head = head
        self._state = None


def _objective_held(outcome: RequestOutcome, objective: Objective) -> bool:
    measured = {Metric.TTFT: outcome.ttft_ms, Metric.ITL: outcome.itl_ms, Metric.E2E: outcome.e2e_ms}
    value = measured[objective.metric]
    if not outcome.served and (value is None or objective.metric is not Metric.TTFT):
        # It was admitted and broke: only what had already happened in time was kept.
        return False
    return value is None or value <= objective.target_ms
