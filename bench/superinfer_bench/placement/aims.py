"""What placement is held to, from what has been measured so far. Pure."""

import math
from collections.abc import Sequence

from superinfer_bench.placement.fill import Filled
from superinfer_bench.placement.scale import Timing
from superinfer_bench.report import Aim

AIM_NODES = 10_000


def aims(timing: Timing | None, filled: Sequence[Filled]) -> list[Aim]:
    """Every aim, met or not; one that was not measured, or not at full size, is not met."""
    full = timing if timing is not None and timing.nodes >= AIM_NODES else None
    found = [
        Aim.at_most("10,000 nodes: full plan", 5.0, full.full_plan_s if full else None, " s"),
        Aim.at_most("10,000 nodes: one change, p99", 20.0, full.change_ms["p99"] if full else None, " ms"),
    ]
    for family in sorted({_family(one.input) for one in filled}):
        ours, theirs = _mean(filled, "superinfer", family), _mean(filled, "fgd", family)
        name = f"{family}: allocation, mean over inputs"
        # Figures are shown with four digits; rounding must not decide.
        wanted = math.floor(theirs * 10_000) / 10_000 if theirs is not None else 1.0
        found.append(Aim.at_least(f"{name}, at least FGD's", wanted, ours))
    return found


def _family(name: str) -> str:
    """Inputs that differ only in their seed are one family."""
    stem, _, seed = name.rpartition("-")
    return stem if seed.isdigit() else name


def _mean(filled: Sequence[Filled], policy: str, family: str) -> float | None:
    found = [
        one.allocated_gpu_ratio for one in filled if one.policy == policy and _family(one.input) == family
    ]
    return sum(found) / len(found) if found else None
