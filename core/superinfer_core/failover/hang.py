"""Does an engine hang? Its silence is judged net of the time it had no CPU. Pure.

An engine that computes says something after every step. One that has been moving work and falls silent for
longer than `floor_ms`, and than `factor` times the longest step predicted, hangs. Time in which it was ready
to run and had no CPU, and time in which the observer itself did not run, are not silence: a starved engine is
slow, and taking its work elsewhere would only make the machine slower.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Work(Enum):
    """What the engine has to do, as far as it can be told from outside."""

    NONE = auto()
    SIZING = auto()  # only prompts whose sizes are being asked for: a grammar may take long to compile
    WAITING = auto()  # handed over, and nothing of it has moved yet
    MOVING = auto()  # tokens or prefill chunks have come


@dataclass(frozen=True, slots=True)
class HangPolicy:
    """How long silence may last.

    Attributes:
        floor_ms: the least limit, whatever is predicted.
        factor: times the longest step predicted.
        waiting_ms: limit while nothing has moved yet, or no prediction rests on measurements.
        young_ms: so long after its start an engine still meets shapes it has no kernels for, and compiles
            them; meanwhile the limit is the one of `waiting_ms`.
        sizing_ms: limit while only sizes are asked for. 0: no limit.
    """

    floor_ms: float = 2_000.0
    factor: float = 4.0
    waiting_ms: float = 15_000.0
    young_ms: float = 60_000.0
    sizing_ms: float = 120_000.0

    def limit_ms(self, work: Work, *, longest_step_ms: float, trusted: bool) -> float:
        """Net silence after which an engine with this work hangs; infinite: never."""
        if work is Work.NONE:
            return float("inf")
        if work is Work.SIZING:
            return self.sizing_ms or float("inf")
        moving_ms = max(self.floor_ms, self.factor * longest_step_ms)
        if work is Work.MOVING and trusted:
            return moving_ms
        return max(moving_ms, self.waiting_ms)


def hangs(*, silent_ms: float, starved_ms: float, blind_ms: float, limit_ms: float) -> bool:
    """Whether an engine hangs.

    Args:
        silent_ms: since it last said something, or since it had nothing to do.
        starved_ms: of it, time it waited for a CPU or was throttled.
        blind_ms: of it, time the observer did not run.
        limit_ms: of HangPolicy.
    """
    return silent_ms - max(0.0, starved_ms) - max(0.0, blind_ms) > limit_ms
