"""Window counts of one ingress as others read them: one small mapping per contract, to be added up.

Counts belong to a promise: misses are listed in the order of its objectives. Every mapping therefore says
which promise was counted, and one that was counted under another is of no use to the reader. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.fulfilment import Attainment, WindowCounts, attainment_of

_FIELDS: Final = ("offered", "served", "admitted", "kept", "degraded", "cancelled", "excluded")


def promise_of(contract: EffectiveContract) -> str:
    """What is counted under a contract, as text: equal texts can be added up."""
    parts = [f"{o.metric.value} P{o.percentile:g} {o.target_ms}" for o in contract.objectives]
    parts.append(f"jitter {contract.max_jitter_ms}")
    parts.append(f"window {contract.window_s:g}")
    return "; ".join(parts)


def counts_document(contract: EffectiveContract, counts: WindowCounts, *, covered: float) -> dict[str, Any]:
    """One contract's counts as plain data; figures of nothing are left out."""
    document: dict[str, Any] = {
        field: getattr(counts, field) for field in _FIELDS if getattr(counts, field) != 0
    }
    if any(counts.misses):
        document["misses"] = list(counts.misses)
    document["covered"] = round(covered, 4)
    document["promise"] = promise_of(contract)
    return document


def attainment_from(contract: EffectiveContract, documents: Iterable[Mapping[str, Any]]) -> Attainment:
    """A contract over its window, from the counts of every ingress replica.

    Counts of another promise, and what is no counts at all, are left out.
    """
    total = WindowCounts()
    covered: float | None = None
    promise = promise_of(contract)
    for document in documents:
        if document.get("promise") != promise:
            continue
        try:
            counts = WindowCounts(
                **{field: _count(document.get(field, 0)) for field in _FIELDS},
                misses=tuple(_count(missed) for missed in document.get("misses") or ()),
            )
            share = min(1.0, max(0.0, float(document.get("covered", 0.0))))
        except (TypeError, ValueError):
            continue
        if counts.served > counts.offered or max(counts.misses, default=0) > counts.admitted:
            continue
        total += counts
        covered = share if covered is None else max(covered, share)
    return attainment_of(contract, total, covered=1.0 if covered is None else covered)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        msg = f"not a count: {value!r}"
        raise ValueError(msg)
    return value
