"""Urgency: slack turned into a bounded weight and a small bucket number, by a profile that is data.

Promise: total and bounded: infinities, NaN and numbers of any size give a weight within the profile's clamp
and a bucket in 0..63. Frozen values.

Two forms. Segmented: steps over slack, as the first users wrote it (> 200 ms slow, 100 to 200 ms once, <
100 ms twice). Exponential: exp(-k * slack) clamped in the exponent before it is raised, so that k = 5 and a
slack of minus a minute is a number like any other.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from math import exp, floor, isnan, log
from typing import Any, Final, TypeVar

from superinfer_core.values import InvalidValue, number

_E = TypeVar("_E", bound=StrEnum)
MAX_BUCKET: Final = 63
_MAX_EXPONENT: Final = 60.0
_MAX_NUMBER: Final = 1e9


class Scale(StrEnum):
    """What slack is measured in before the profile sees it."""

    ABSOLUTE_MS = "AbsoluteMs"
    FRACTION_OF_TARGET = "FractionOfTarget"


class Form(StrEnum):
    """Shape of the profile."""

    SEGMENTED = "Segmented"
    EXPONENTIAL = "Exponential"


class UrgencyProfileInvalid(InvalidValue):
    """A profile that cannot be used."""


def _finite(value: float, fallback: float) -> float:
    """`value` as a finite float; NaN becomes `fallback`, what is too large the largest we handle."""
    try:
        number = float(value)
    except OverflowError:
        return 1e300 if value > 0 else -1e300
    if isnan(number):
        return fallback
    return min(1e300, max(-1e300, number))


@dataclass(frozen=True, slots=True)
class Segment:
    """Slack of at least `above` (in the profile's scale) has this urgency."""

    above: float
    urgency: float


def _geometric() -> tuple[Segment, ...]:
    """Buckets of slack that grow by half: 5 ms, 7.5 ms, ... 64 s, weighted by the inverse of slack."""
    bounds = [5.0 * 1.5**i for i in range(24)]
    return tuple(Segment(round(b, 1), round(100.0 / b, 4)) for b in reversed(bounds))


@dataclass(frozen=True, slots=True)
class UrgencyProfile:
    """How slack becomes urgency.

    Attributes:
        name: for people.
        form: segmented or exponential.
        scale: milliseconds, or fractions of the request's own target.
        segments: for the segmented form, by falling `above`; below the last one, `max_urgency`.
        k: steepness of the exponential form, per unit of scale.
        smoothing: slack is floored to multiples of this before use (in the scale), so that urgency does not
            flap between neighbours; 0 is off.
        min_urgency, max_urgency: clamp of the weight.
    """

    name: str = "default"
    form: Form = Form.SEGMENTED
    scale: Scale = Scale.ABSOLUTE_MS
    segments: tuple[Segment, ...] = field(default_factory=_geometric)
    k: float = 5.0
    smoothing: float = 0.0
    min_urgency: float = 0.001
    max_urgency: float = 100.0
    _bounds: tuple[float, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        """Keep the bounds of the segments ascending, to find a bucket by bisection."""
        object.__setattr__(self, "_bounds", tuple(s.above for s in reversed(self.segments)))

    def urgency(self, slack_ms: float, target_ms: float) -> float:
        """Weight in [min_urgency, max_urgency]; never falls when slack falls."""
        x = self._scaled(slack_ms, target_ms)
        if self.form is Form.SEGMENTED:
            weight = self.max_urgency
            for s in self.segments:
                if x >= s.above:
                    weight = s.urgency
                    break
        else:
            weight = exp(min(_MAX_EXPONENT, max(-_MAX_EXPONENT, -self.k * x)))
        return min(self.max_urgency, max(self.min_urgency, weight))

    def bucket(self, slack_ms: float, target_ms: float) -> int:
        """Small number that sorts: 0 is the most urgent; never rises when slack falls."""
        if self.form is Form.SEGMENTED:
            # Ordinary slack of the default profile needs no care: this runs for every request and step.
            plain = self.scale is Scale.ABSOLUTE_MS and self.smoothing == 0 and -1e15 < slack_ms < 1e15
            x = slack_ms if plain else self._scaled(slack_ms, target_ms)
            return min(MAX_BUCKET, bisect_right(self._bounds, x))
        top = log(self.max_urgency)
        span = top - log(self.min_urgency)
        if span <= 0:
            return 0
        at = (top - log(self.urgency(slack_ms, target_ms))) / span
        return min(MAX_BUCKET, max(0, floor(at * MAX_BUCKET)))

    def _scaled(self, slack_ms: float, target_ms: float) -> float:
        x = _finite(slack_ms, -1e300)
        if self.scale is Scale.FRACTION_OF_TARGET:
            target = _finite(target_ms, 1.0)
            x = _finite(x / target if target > 1e-9 else x / 1e-9, -1e300)
        if self.smoothing > 0 and abs(x) < 1e15 * self.smoothing:
            x = floor(x / self.smoothing) * self.smoothing
        return x

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> "UrgencyProfile":
        """Parse one profile, as slack_decay_profile.yaml has several; raises UrgencyProfileInvalid."""
        if not isinstance(data, Mapping):
            raise UrgencyProfileInvalid("(profile)", data, "write a mapping with name and form")
        known = {"name", "form", "scale", "segments", "k", "smoothing", "minUrgency", "maxUrgency"}
        for key in data:
            if key not in known:
                raise UrgencyProfileInvalid(str(key), data[key], f"use one of {', '.join(sorted(known))}")
        low = _number(data, "minUrgency", 0.001, least=1e-9)
        high = _number(data, "maxUrgency", 100.0, least=low)
        return cls(
            name=str(data.get("name", "default")),
            form=_choice(data, "form", Form, Form.SEGMENTED),
            scale=_choice(data, "scale", Scale, Scale.ABSOLUTE_MS),
            segments=_segments(data.get("segments", [])),
            k=_number(data, "k", 5.0, least=0.0),
            smoothing=_number(data, "smoothing", 0.0, least=0.0),
            min_urgency=low,
            max_urgency=high,
        )


def _number(data: Mapping[str, Any], field: str, default: float, *, least: float) -> float:
    return number(field, data.get(field, default), least, _MAX_NUMBER, error=UrgencyProfileInvalid)


def _choice(data: Mapping[str, Any], field: str, kind: type[_E], default: _E) -> _E:
    value = data.get(field, default)
    try:
        return kind(value)
    except ValueError:
        raise UrgencyProfileInvalid(field, value, f"use one of {', '.join(kind)}") from None


def _segments(value: object) -> tuple[Segment, ...]:
    if not isinstance(value, list) or len(value) > MAX_BUCKET:
        raise UrgencyProfileInvalid("segments", value, f"write a list of at most {MAX_BUCKET} segments")
    segments = []
    for item in value:
        if not isinstance(item, Mapping) or set(item) != {"above", "urgency"}:
            raise UrgencyProfileInvalid("segments", item, "write {above: slack, urgency: weight}")
        segments.append(
            Segment(_number(item, "above", 0.0, least=-1e9), _number(item, "urgency", 1.0, least=0.0))
        )
    for a, b in pairwise(segments):
        if not (a.above > b.above and a.urgency <= b.urgency):
            raise UrgencyProfileInvalid(
                "segments", (a.above, b.above), "order by falling `above` and rising `urgency`"
            )
    return tuple(segments)
