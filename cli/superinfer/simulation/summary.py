"""Figures of a run, under the names of issue A's slo.json.

Promise: pure; an empty run gives zeros, never an exception.
"""

from typing import Any

from superinfer.simulation.contracts import ContractTally
from superinfer.simulation.fleet import TIERS, Outcome, Run


def percentile(values: list[float], share: float) -> float:
    """Nearest-rank percentile; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summarise(run: Run, tally: ContractTally) -> dict[str, Any]:
    """One entry of `runs`."""
    outcomes = list(run.outcomes.values())
    seconds = max(1e-9, run.end_ms / 1000.0)
    kept = sum(o.kept for o in outcomes)
    ttft = [o.first_ms - o.job.arrived_ms for o in outcomes if o.first_ms is not None]
    itl = [i for o in outcomes if (i := mean_itl_ms(o)) is not None]
    fulfilled = tally.fulfilled()
    return {
        "goodput_rps": kept / seconds,
        "tokens_per_s": run.tokens / seconds,
        "refused": sum(o.refusal is not None for o in outcomes),
        "preempted": run.preempted,
        "wrongly_admitted": sum(o.admitted and not o.kept for o in outcomes),
        "tiers": {
            t.value.lower(): {
                "offered": sum(o.job.tier is t for o in outcomes),
                "admitted": sum(o.job.tier is t and o.admitted for o in outcomes),
                "kept": sum(o.job.tier is t and o.kept for o in outcomes),
            }
            for t in TIERS
        },
        "kept_of_contracts": sum(fulfilled.values()) / len(fulfilled) if fulfilled else 0.0,
        "ttft_ms": {"p50": percentile(ttft, 0.5), "p99": percentile(ttft, 0.99)},
        "itl_ms": {"p50": percentile(itl, 0.5), "p99": percentile(itl, 0.99)},
    }


def mean_itl_ms(o: Outcome) -> float | None:
    """Mean time between tokens; None where there is no second token."""
    if o.first_ms is None or o.last_ms is None or o.job.output_tokens < 2:
        return None
    return (o.last_ms - o.first_ms) / (o.job.output_tokens - 1)
