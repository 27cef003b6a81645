"""A load run for people and programs: per contract, what was asked, served, refused and kept. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from superinfer.load.record import RequestRecord
from superinfer.percentiles import nearest_rank

NO_CONTRACT = "(none)"


def summarise(records: Sequence[RequestRecord], duration_s: float) -> dict[str, Any]:
    """The whole run, and every contract of it."""
    contracts = sorted({record.contract for record in records})
    served = [record for record in records if record.served]
    return {
        "duration_s": round(duration_s, 3),
        "requests": len(records),
        "goodput_rps": round(sum(record.kept for record in records) / duration_s, 4),
        "tokens_per_s": round(sum(record.tokens for record in served) / duration_s, 2),
        "late_sending_ms_p99": _percentile([record.sent_ms - record.due_ms for record in records], 0.99),
        "contracts": {
            contract or NO_CONTRACT: _figures([r for r in records if r.contract == contract])
            for contract in contracts
        },
    }


def _figures(records: Sequence[RequestRecord]) -> dict[str, Any]:
    served = [record for record in records if record.served]
    return {
        "asked": len(records),
        "served": len(served),
        "kept": sum(record.kept for record in records),
        "refused": dict(Counter(record.code or "no answer" for record in records if not record.served)),
        "ttft_ms": _spread(record.ttft_ms for record in served),
        "itl_ms": _spread(record.itl_ms for record in served),
        "e2e_ms": _spread(record.e2e_ms for record in served),
    }


def _spread(values: Iterable[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    return {"p50": _percentile(known, 0.5), "p99": _percentile(known, 0.99)}


def _percentile(values: Sequence[float], share: float) -> float | None:
    return round(nearest_rank(values, share), 2) if values else None
