"""What scheduling by slack is meant to reach, from what has been measured so far. Pure."""

from collections.abc import Sequence

from superinfer_bench.report import Aim
from superinfer_bench.slo.outcome import Measured

BASELINES = ("fcfs", "priority", "edf")
OVERLOAD, MODERATE = 1.5, 0.7


def aims(runs: Sequence[Measured], gold_alone: dict[float, float]) -> list[Aim]:
    """Every aim, met or not; one that was not measured is not met.

    Args:
        runs: through the ingress.
        gold_alone: load to the share of offered gold kept when gold is alone on the engine.
    """
    ours = _find(runs, "superinfer", OVERLOAD)
    calm = _find(runs, "superinfer", MODERATE)
    baselines = [r for r in runs if r.policy in BASELINES and r.load == OVERLOAD]
    best = max((r.goodput_rps for r in baselines), default=None)
    fcfs = _find(runs, "fcfs", OVERLOAD)
    alone = gold_alone.get(OVERLOAD)
    gold = _kept(ours, "gold", of_offered=True)
    goodput = ours.goodput_rps if ours else None
    everyone = ("gold", "silver", "bronze")
    return [
        Aim.at_least("1.5x: admitted gold kept", 0.99, _kept(ours, "gold")),
        Aim.at_least("1.5x: admitted silver kept", 0.99, _kept(ours, "silver")),
        Aim.at_least("1.5x: admitted bronze kept", 0.95, _kept(ours, "bronze")),
        Aim.at_least("1.5x: offered gold kept, of gold alone on the engine", 0.9, _ratio(gold, alone)),
        Aim.at_least("1.5x: goodput over best baseline", 3.0, _ratio(goodput, best)),
        Aim.at_least("0.7x: all offered kept", 0.95, _kept(calm, *everyone, of_offered=True)),
        Aim.at_least("1.5x: tokens/s of fcfs", 0.95, _ratio(_tokens(ours), _tokens(fcfs))),
    ]


def _find(runs: Sequence[Measured], policy: str, load: float) -> Measured | None:
    return next((r for r in runs if r.policy == policy and r.load == load), None)


def _kept(run: Measured | None, *tiers: str, of_offered: bool = False) -> float | None:
    return None if run is None else run.kept_share(*tiers, of_offered=of_offered)


def _tokens(run: Measured | None) -> float | None:
    return None if run is None else run.tokens_per_s


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None
