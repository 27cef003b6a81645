"""Figures of a run, under the names that `make bench-slo` writes, so that both can be compared.

Promise: pure; an empty run gives zeros, never an exception.
"""

from collections.abc import Sequence
from typing import Any

from superinfer.percentiles import nearest_rank
from superinfer.simulation.contracts import ContractTally
from superinfer.simulation.fleet import Outcome, Run
from superinfer_core.slo import Tier


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """One entry of `runs`, of one run or of the parts of a fleet."""
    outcomes = [o for run in runs for o in run.outcomes.values()]
    end_ms = max((run.end_ms for run in runs), default=0.0)
    seconds = max(1e-9, end_ms / 1000.0)
    ttft = [o.first_ms - o.job.arrived_ms for o in outcomes if o.first_ms is not None]
    itl = [i for o in outcomes if (i := mean_itl_ms(o)) is not None]
    fulfilled = contracts_fulfilled(outcomes)
    return {
        "seconds": seconds,
        "goodput_rps": sum(o.kept for o in outcomes) / seconds,
        "tokens_per_s": sum(run.tokens for run in runs) / seconds,
        "refused": sum(o.refusal is not None for o in outcomes),
        "preempted": sum(run.preempted for run in runs),
        "wrongly_admitted": sum(o.admitted and not o.kept for o in outcomes),
        "tiers": {
            t.value.lower(): {
                "offered": sum(o.job.tier is t for o in outcomes),
                "admitted": sum(o.job.tier is t and o.admitted for o in outcomes),
                "kept": sum(o.job.tier is t and o.kept for o in outcomes),
            }
            for t in Tier
        },
        "kept_of_contracts": sum(fulfilled.values()) / len(fulfilled) if fulfilled else 0.0,
        "ttft_ms": _spread(ttft),
        "itl_ms": _spread(itl),
        "steps": sum(run.steps for run in runs),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": nearest_rank(values, 0.5), "p99": nearest_rank(values, 0.99)}


def contracts_fulfilled(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """Per contract, whether percentiles over the admitted and availability both held over the run."""
    tally = ContractTally(1.0)
    for o in outcomes:
        tally.offered(o.job.slo.contract, o.job.tier)
        if o.refusal is not None:
            tally.refused(o.job.slo.contract)
        else:
            tally.served(o.job.slo.contract, kept=o.kept)
    return tally.fulfilled()


def mean_itl_ms(o: Outcome) -> float | None:
    """Mean time between tokens; None where there is no second token."""
    if o.first_ms is None or o.last_ms is None or o.job.output_tokens < 2:
        return None
    return (o.last_ms - o.first_ms) / (o.job.output_tokens - 1)
