"""A request's promise on the wire, as the engine's scheduler reads it from sampling parameters.

Only durations: what had elapsed when the message was sent, plus what has elapsed here since. Pure;
instants are passed in.
"""

from typing import Any, Final

from superinfer_core.slo import BEST_EFFORT_TIER_RANK, Rank, RequestSlo, Tier
from superinfer_executor.plugin.request_slo import MAX_MS, EnginePromise, promise_extra_args
from superinfer_proto.v1 import slo_pb2, work_pb2

_TIERS: Final = {
    slo_pb2.TIER_GOLD: Tier.GOLD,
    slo_pb2.TIER_SILVER: Tier.SILVER,
    slo_pb2.TIER_BRONZE: Tier.BRONZE,
}


def tier_rank(slo: slo_pb2.RequestSlo) -> int:
    """0 for the highest tier; work without a promise comes after every tier."""
    tier = _TIERS.get(slo.tier)
    return BEST_EFFORT_TIER_RANK if slo.best_effort or tier is None else tier.rank


def slo_args(submit: work_pb2.Submit, received_ms: float, now_ms: float) -> dict[str, Any]:
    """extra_args of a submit that was received at `received_ms` and goes to the engine now."""
    slo, here_ms = submit.slo, max(0.0, now_ms - received_ms)
    first_ms = slo.since_first_token_ms + here_ms if slo.HasField("since_first_token_ms") else None
    return promise_extra_args(
        EnginePromise(
            slo=_promised(slo),
            elapsed_ms=min(MAX_MS, max(0.0, slo.elapsed_ms) + here_ms),
            since_first_token_ms=None if first_ms is None else min(MAX_MS, max(0.0, first_ms)),
            expected_output_tokens=submit.expected_output_tokens or None,
        )
    )


def _promised(slo: slo_pb2.RequestSlo) -> RequestSlo:
    def target(name: str) -> float | None:
        return getattr(slo, name) if slo.HasField(name) and not slo.best_effort else None

    return RequestSlo(
        contract=slo.contract,
        rank=Rank(tier_rank(slo), -slo.priority),
        ttft_ms=target("ttft_target_ms"),
        itl_ms=target("itl_target_ms"),
        e2e_ms=target("e2e_target_ms"),
        max_jitter_ms=target("max_jitter_ms"),
        best_effort=slo.best_effort,
        contract_holds=slo.contract_holds,
        budget_left=slo.budget_left,
    )
