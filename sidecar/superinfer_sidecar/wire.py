"""Between the wire's messages and core's types. Whatever comes from the wire is checked here, once."""

import math
from dataclasses import dataclass
from typing import Final

from superinfer_core.refusal import Refusal, RefusalCode
from superinfer_core.slo import BEST_EFFORT_TIER_RANK, Rank, RequestSlo, Tier
from superinfer_proto.v1 import sidecar_pb2, slo_pb2, work_pb2

_TIERS: Final = {
    slo_pb2.TIER_UNSPECIFIED: Tier.BRONZE,
    slo_pb2.TIER_GOLD: Tier.GOLD,
    slo_pb2.TIER_SILVER: Tier.SILVER,
    slo_pb2.TIER_BRONZE: Tier.BRONZE,
}
_DEFAULT_QUANTILE: Final = 0.99
_MOST_ELAPSED_MS: Final = 24 * 3600 * 1000.0
_LONGEST_ID: Final = 256


class InvalidSubmitError(Exception):
    """A submit nobody can serve; carries the refusal."""

    def __init__(self, code: RefusalCode, message: str, param: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(code=code, message=message, param=param)


@dataclass(frozen=True, slots=True)
class Promise:
    """A request's promise, and how long ago its clock started."""

    slo: RequestSlo
    elapsed_ms: float
    since_first_token_ms: float | None


def read_promise(submit: work_pb2.Submit) -> Promise:
    """The promise of a submit; raises InvalidSubmitError naming field, value and fix."""
    if not submit.request_id or len(submit.request_id) > _LONGEST_ID:
        message = f"request_id must have 1 to {_LONGEST_ID} characters, got {len(submit.request_id)}"
        raise InvalidSubmitError(RefusalCode.INVALID_REQUEST, message, "request_id")
    if not submit.path or not submit.body:
        raise InvalidSubmitError(RefusalCode.INVALID_REQUEST, "path and body must be set", "body")
    wire = submit.slo
    quantile = wire.quantile or _DEFAULT_QUANTILE
    if not 0 < quantile < 1:
        _refuse("quantile", quantile, "must lie between 0 and 1")
    best_effort = wire.best_effort
    tier_rank = BEST_EFFORT_TIER_RANK if best_effort else _TIERS.get(wire.tier, Tier.BRONZE).rank
    budget_left = wire.budget_left
    slo = RequestSlo(
        contract=wire.contract,
        rank=Rank(tier_rank, -wire.priority),
        ttft_ms=_target(wire, "ttft_target_ms"),
        itl_ms=_target(wire, "itl_target_ms"),
        e2e_ms=_target(wire, "e2e_target_ms"),
        max_jitter_ms=_target(wire, "max_jitter_ms"),
        quantile=quantile,
        best_effort=best_effort,
        contract_holds=wire.contract_holds,
        budget_left=min(1.0, max(0.0, budget_left)) if budget_left == budget_left else 0.0,
    )
    since = wire.since_first_token_ms if wire.HasField("since_first_token_ms") else None
    return Promise(
        slo,
        _elapsed("elapsed_ms", wire.elapsed_ms),
        None if since is None else _elapsed("since_first_token_ms", since),
    )


def _target(wire: slo_pb2.RequestSlo, name: str) -> float | None:
    if not wire.HasField(name):
        return None
    value = float(getattr(wire, name))
    if not 0 < value < math.inf:
        _refuse(name, value, "must be a finite number of milliseconds above 0")
    return value


def _elapsed(name: str, value: float) -> float:
    if not 0 <= value <= _MOST_ELAPSED_MS:
        _refuse(name, value, f"must lie between 0 and {_MOST_ELAPSED_MS:.0f} ms")
    return value


def _refuse(name: str, value: float, fix: str) -> None:
    raise InvalidSubmitError(RefusalCode.INVALID_SLO, f"slo.{name} is {value}: it {fix}", name)


def refusal_message(refusal: Refusal) -> sidecar_pb2.Refusal:
    """A refusal as it travels; what is not known stays 0."""
    return sidecar_pb2.Refusal(
        error=slo_pb2.Error(code=refusal.code.value, message=refusal.message, param=refusal.param or ""),
        metric=refusal.metric or "",
        predicted_ms=refusal.predicted_ms or 0.0,
        required_ms=refusal.required_ms or 0.0,
        tightest_ms=refusal.tightest_ms or 0.0,
        feasible_when_idle=bool(refusal.feasible_when_idle),
        retry_after_ms=refusal.retry_after_ms or 0.0,
        harm=refusal.harm,
    )


def known_code(code: str) -> RefusalCode:
    """The code of an error an engine reported; one it must not use is its own failure."""
    try:
        return RefusalCode(code)
    except ValueError:
        return RefusalCode.ENGINE_FAILED
