"""Everything a scheduling decision needs besides the state: one frozen argument.

Promise: frozen; decisions never look anything up elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from superinfer_core.prediction.step_model import StepModel
from superinfer_core.scheduling.forecast import NO_FORECAST, ForecastSnapshot
from superinfer_core.scheduling.policy import SchedulingPolicy


def certain(_quantile: float) -> float:
    """The factor of a prediction that is taken as it is."""
    return 1.0


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """Model, settings and forecast.

    Attributes:
        model: step times of this executor now.
        policy: settings.
        factor: quantile -> what a predicted total is multiplied by to hold with that probability.
        forecast: load of the ranks.
    """

    model: StepModel
    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    factor: Callable[[float], float] = certain
    forecast: ForecastSnapshot = NO_FORECAST
