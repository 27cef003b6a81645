"""The status of a contract, as it is written. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from superinfer_core.api.v1alpha1.conditions import dated
from superinfer_core.api.v1alpha1.slocontract import AttainmentStatus, SLOContractStatus
from superinfer_core.contract.conditions import contract_conditions
from superinfer_core.contract.resolution import ResolvedContract
from superinfer_core.contract.shared_counts import attainment_from
from superinfer_core.contract.status import attainment_status, effective_status
from superinfer_operator.watching.contracts import ContractRecord

Counts = Iterable[Mapping[str, Any]]


def contract_status(
    record: ContractRecord, resolved: ResolvedContract, counts: Counts, *, now: str
) -> dict[str, Any]:
    """The whole status.

    Args:
        record: the contract as it is stored.
        resolved: what it comes to.
        counts: of every ingress replica that published some.
        now: RFC 3339.
    """
    conditions = dated(contract_conditions(resolved), record.conditions, now)
    status = SLOContractStatus(
        conditions=[condition.as_status() for condition in conditions],
        observed_generation=resolved.generation,
        effective=effective_status(resolved),
        attainment=_attainment(resolved, list(counts), now),
    )
    document: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


def _attainment(
    resolved: ResolvedContract, counts: list[Mapping[str, Any]], now: str
) -> AttainmentStatus | None:
    if resolved.effective is None or not counts:
        return None
    return attainment_status(attainment_from(resolved.effective, counts), now)
