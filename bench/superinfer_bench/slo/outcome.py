"""One run in figures.

Pure. A request is kept when it was served whole, its first token and its mean gap within their targets,
measured by the client. Admitted = everything the system took on: also what it gave up later
(`deadline_expired`, `shed`, a broken stream), so giving up admitted work never flatters the share kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from superinfer.load.record import RequestRecord
from superinfer.load.run import Run
from superinfer.percentiles import nearest_rank
from superinfer_bench.slo.settings import AVAILABILITY, PERCENTILES

TAKEN_ON = frozenset({"deadline_expired", "shed", "engine_failed", "not_resumable"})
TIERS = ("gold", "silver", "bronze")


def admitted(record: RequestRecord) -> bool:
    """Whether the system took the request on."""
    return not record.refused or record.code in TAKEN_ON


@dataclass(frozen=True, slots=True)
class Measured:
    """A run of one contender at one load."""

    policy: str
    load: float
    run: Run
    via: str = "ingress"
    client_cpu_s: float = 0.0

    def kept_share(self, *tiers: str, of_offered: bool = False) -> float | None:
        """Share kept of what these tiers had admitted (or offered); None without any."""
        base = [r for r in self.run.records if r.tier in tiers and (of_offered or admitted(r))]
        return sum(r.kept for r in base) / len(base) if base else None

    @property
    def goodput_rps(self) -> float:
        """Kept requests a second, until the last answer."""
        return sum(r.kept for r in self.run.records) / self.run.duration_s

    @property
    def tokens_per_s(self) -> float:
        """All tokens delivered, useful or not."""
        return sum(r.tokens for r in self.run.records) / self.run.duration_s

    def as_json(self, wrongly_refused: Mapping[str, Any]) -> dict[str, Any]:
        """One entry of `runs`."""
        records = self.run.records
        ttft = [r.ttft_ms for r in records if r.ttft_ms is not None]
        itl = [r.itl_ms for r in records if r.itl_ms is not None]
        lag = [r.sent_ms - r.due_ms for r in records]
        return {
            "policy": self.policy,
            "load": self.load,
            "via": self.via,
            "requests": len(records),
            "duration_s": round(self.run.duration_s, 3),
            "goodput_rps": round(self.goodput_rps, 4),
            "tokens_per_s": round(self.tokens_per_s, 2),
            "refused": sum(not admitted(r) for r in records),
            "refusals": _counts(r.code for r in records if r.code is not None),
            "broken": sum(admitted(r) and not r.served for r in records),
            "preempted": sum(r.preempted for r in records),
            "wrongly_admitted": sum(admitted(r) and not r.kept for r in records),
            **wrongly_refused,
            "tiers": {tier: _tier([r for r in records if r.tier == tier]) for tier in TIERS},
            "kept_of_contracts": round(kept_of_contracts(records), 4),
            "ttft_ms": _percentiles(ttft),
            "itl_ms": _percentiles(itl),
            "send_lag_ms": _percentiles(lag),
            "client_cpu_share": round(self.client_cpu_s / self.run.duration_s, 4),
        }


def kept_of_contracts(records: Iterable[RequestRecord]) -> float:
    """Share of contracts fulfilled over the run: percentiles over admitted, and availability."""
    by_contract: dict[str, list[RequestRecord]] = {}
    for record in records:
        by_contract.setdefault(record.contract, []).append(record)
    held = [_fulfilled(those) for those in by_contract.values()]
    return sum(held) / len(held) if held else 0.0


def _fulfilled(records: Sequence[RequestRecord]) -> bool:
    tier = records[0].tier
    taken = [r for r in records if admitted(r)]
    served = sum(r.served for r in taken)
    if served < AVAILABILITY[tier] * len(records) - 1e-9:
        return False
    share = PERCENTILES[tier] / 100 * len(taken) - 1e-9
    first = sum(r.served and (r.ttft_ms or 0.0) <= (r.ttft_target_ms or 1e12) for r in taken)
    gaps = sum(r.served and (r.itl_ms or 0.0) <= (r.itl_target_ms or 1e12) for r in taken)
    return first >= share and gaps >= share


def _tier(records: Sequence[RequestRecord]) -> dict[str, Any]:
    offered, taken, kept = len(records), sum(map(admitted, records)), sum(r.kept for r in records)
    return {
        "offered": offered,
        "admitted": taken,
        "kept": kept,
        "kept_of_offered": round(kept / offered, 4) if offered else None,
        "kept_of_admitted": round(kept / taken, 4) if taken else None,
    }


def _percentiles(values: list[float]) -> dict[str, float]:
    return {"p50": round(nearest_rank(values, 0.5), 3), "p99": round(nearest_rank(values, 0.99), 3)}


def _counts(values: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        found[value] = found.get(value, 0) + 1
    return found
