"""The promise of one request: its contract's targets, tightened by its headers.

The deadline of a metric is the target of its highest percentile. Headers tighten and never loosen; where the
contract says nothing about a metric, a header adds it. Pure, and on the path of every request.
"""

from typing import Final

from superinfer_core.contract.budget import WindowState
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.headers import NO_HEADERS, HeaderSlo
from superinfer_core.slo import BEST_EFFORT_TIER_RANK, Metric, Rank, RequestSlo

DEFAULT_QUANTILE: Final = 0.99
"""Prediction quantile where only headers ask for something."""

_BEST_EFFORT_RANK: Final = Rank(BEST_EFFORT_TIER_RANK)
_FRESH: Final = WindowState()


def request_slo(
    contract: EffectiveContract | None,
    headers: HeaderSlo = NO_HEADERS,
    window: WindowState | None = None,
) -> RequestSlo:
    """Resolve what one request is promised.

    Without a contract it has the lowest rank and only what its headers ask for; with neither it is best
    effort. `quantile` is the highest percentile among the targets that count: admission must be as sure of
    the request as the contract is of its requests.
    """
    if contract is None:
        return _without_contract(headers)
    ttft: float | None = None
    itl: float | None = None
    e2e: float | None = None
    percentile = 0.0
    # Objectives are sorted by (metric, percentile): the last of a metric has its highest percentile.
    for objective in contract.objectives:
        metric = objective.metric
        if metric is Metric.TTFT:
            ttft = objective.target_ms
        elif metric is Metric.ITL:
            itl = objective.target_ms
        else:
            e2e = objective.target_ms
        percentile = max(percentile, objective.percentile)
    if headers is not NO_HEADERS:
        ttft = _tighter(ttft, headers.ttft_ms)
        itl = _tighter(itl, headers.itl_ms)
        e2e = _tighter(e2e, headers.e2e_ms)
    state = window if window is not None else _FRESH
    return RequestSlo(
        contract=contract.key,
        rank=contract.rank,
        ttft_ms=ttft,
        itl_ms=itl,
        e2e_ms=e2e,
        max_jitter_ms=contract.max_jitter_ms,
        quantile=percentile / 100.0 if percentile else DEFAULT_QUANTILE,
        contract_holds=state.holds,
        budget_left=state.budget_left,
    )


def best_effort_slo(contract: EffectiveContract | None) -> RequestSlo:
    """What a degraded request carries: no deadline, the lowest rank, still accounted to its contract."""
    return RequestSlo(
        contract=contract.key if contract is not None else "", rank=_BEST_EFFORT_RANK, best_effort=True
    )


def _without_contract(headers: HeaderSlo) -> RequestSlo:
    asked = (headers.ttft_ms, headers.itl_ms, headers.e2e_ms)
    return RequestSlo(
        contract="",
        rank=_BEST_EFFORT_RANK,
        ttft_ms=headers.ttft_ms,
        itl_ms=headers.itl_ms,
        e2e_ms=headers.e2e_ms,
        quantile=DEFAULT_QUANTILE,
        best_effort=all(target is None for target in asked),
    )


def _tighter(promised: float | None, asked: float | None) -> float | None:
    if promised is None or asked is None:
        return asked if promised is None else promised
    return min(promised, asked)
