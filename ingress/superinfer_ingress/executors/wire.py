"""A request's promise and its delivered tokens, as they travel to a sidecar. Only durations travel. Pure."""

from collections.abc import Iterable
from typing import Final

from superinfer_core.slo import RequestSlo, Tier
from superinfer_ingress.ledger import Group
from superinfer_proto.v1 import slo_pb2

_TIERS: Final = {
    Tier.GOLD.rank: slo_pb2.TIER_GOLD,
    Tier.SILVER.rank: slo_pb2.TIER_SILVER,
    Tier.BRONZE.rank: slo_pb2.TIER_BRONZE,
}


def slo_message(
    slo: RequestSlo, elapsed_ms: float, since_first_token_ms: float | None = None
) -> slo_pb2.RequestSlo:
    """The promise with what is gone of it at the moment of sending."""
    return slo_pb2.RequestSlo(
        contract=slo.contract,
        tier=_TIERS.get(slo.rank.tier_rank, slo_pb2.TIER_UNSPECIFIED),
        priority=-slo.rank.negated_priority,
        best_effort=slo.best_effort,
        ttft_target_ms=slo.ttft_ms,
        itl_target_ms=slo.itl_ms,
        e2e_target_ms=slo.e2e_ms,
        max_jitter_ms=slo.max_jitter_ms,
        elapsed_ms=elapsed_ms,
        since_first_token_ms=since_first_token_ms,
        quantile=slo.quantile,
        contract_holds=slo.contract_holds,
        budget_left=slo.budget_left,
    )


def group_messages(groups: Iterable[Group]) -> list[slo_pb2.TokenGroup]:
    """Delivered tokens in their groups, for a resume."""
    return [
        slo_pb2.TokenGroup(
            choice=group.choice,
            first_token=group.first_token,
            token_ids=group.token_ids,
            finish_reason=group.finish_reason,
            stop_reason=group.stop_reason,
        )
        for group in groups
    ]
