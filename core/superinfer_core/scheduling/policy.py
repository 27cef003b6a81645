"""Settings of every scheduling decision, as one frozen value parsed from a YAML mapping.

Promise: a parsed policy is usable; anything else is a PolicyInvalid that names the field, the value and the
fix, whether it is of the policy or of the urgency profile in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from typing_extensions import override

from superinfer_core.contract.document import load_documents
from superinfer_core.contract.problems import ContractInvalid
from superinfer_core.scheduling.urgency import UrgencyProfile, UrgencyProfileInvalid
from superinfer_core.values import InvalidValue, number, whole


class Order(StrEnum):
    """Who goes first. Everything but SLACK is a baseline with vLLM's own semantics."""

    SLACK = "slack"
    FCFS = "fcfs"
    PRIORITY = "priority"
    EDF = "edf"


class PolicyInvalid(InvalidValue):
    """A policy that cannot be used."""

    @override
    def describe(self) -> str:
        """One line; a policy of which nothing in particular is wrong has no value to show."""
        found = "" if self.given == "" else f"={self.value}"
        return f"scheduling policy: {self.field}{found}: {self.fix}"


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """How this executor schedules.

    Defaults were chosen in simulation (`superinfer simulate`, with and without attention cost, bursts
    included).

    Attributes:
        order: see Order; the baselines have no step budget and no preemption for deadlines.
        urgency: slack to urgency.
        work_stretch: a prefill counts as needed so many times its own work when it is put in order: 0 is
            earliest deadline first, 1 latest start first.
        step_budget: prefill tokens per step follow the tightest token deadline.
        pause_decodes: a decode that is far ahead of its pace gets no token while others need its time, and
            counts for the share of steps that its pace needs.
        token_margin: share of the tightest token slack a step may use.
        max_step_ms: no step is planned longer than this (whoever arrives meanwhile waits for its end).
        arrival_share: share of the shortest wait a recent arrival could bear that a step may take.
        min_prefill_tokens: a step that computes any prompt computes at least so many tokens.
        reserve_share: share of the higher ranks' recent prefill load that admission leaves free.
        reserve_places: share of the places the higher ranks' recent load would hold that admission leaves
            free.
        reserve_load: share of the higher ranks' recent prefill and decoding, less what of it runs already,
            that is kept free in a step of the tightest pace among them.
        size_weight: room in that step counts so many times what a request is beyond the usual size of its
            rank: under overload small requests keep more contracts than large ones.
        broken_weight: places a request must find free beyond its own when its contract cannot hold any more.
        triage_weight: the same per unit of error budget below the mean of its rank: under overload it is
            better to lose one contract than a little of all.
        max_preemptions: how often one request may be displaced.
        admission_quantile: quantile of the prediction admission must keep; None takes the contract's.
        admission_margin_ms: added to every predicted first token on a busy engine.
        shed_lost: work that cannot be kept any more may be refused instead of served last.
        window_extra: places beyond max_num_seqs that the sidecar feeds the engine, for whoever may preempt.
    """

    order: Order = Order.SLACK
    urgency: UrgencyProfile = field(default_factory=UrgencyProfile)
    step_budget: bool = True
    pause_decodes: bool = True
    max_step_ms: float = 200.0
    arrival_share: float = 0.5
    min_prefill_tokens: int = 16
    reserve_share: float = 1.5
    reserve_places: float = 0.85
    reserve_load: float = 0.5
    size_weight: float = 1.0
    broken_weight: float = 8.0
    triage_weight: float = 20.0
    token_margin: float = 0.94
    work_stretch: float = 0.6
    max_preemptions: int = 2
    admission_quantile: float | None = None
    admission_margin_ms: float = 0.0
    shed_lost: bool = True
    window_extra: int = 2

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> "SchedulingPolicy":
        """Parse the YAML mapping of a policy file; absent fields keep their default."""
        if not isinstance(data, Mapping):
            raise PolicyInvalid("(policy)", data, "write a mapping")
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in data.items():
            if name not in known:
                raise PolicyInvalid(str(name), value, f"use one of {', '.join(sorted(known))}")
            values[name] = _parse(name, value)
        return cls(**values)

    @classmethod
    def from_yaml(cls, text: str) -> "SchedulingPolicy":
        """Parse the text of a policy file; nothing in it means defaults.

        Raises:
            PolicyInvalid: it is not YAML, or not a policy.
        """
        try:
            documents = load_documents(text)
        except ContractInvalid as invalid:
            first = invalid.problems[0]
            value = first.value.strip("'")
            raise PolicyInvalid(first.field, value, f"{first.message}; {first.fix}") from None
        if len(documents) > 1:
            raise PolicyInvalid("(policy)", f"{len(documents)} documents", "write one")
        return cls.from_mapping(documents[0] if documents else {})


_RANGES: Mapping[str, tuple[float, float]] = {
    "max_step_ms": (1.0, 1e7),
    "arrival_share": (0.01, 100.0),
    "min_prefill_tokens": (0, 1e6),
    "reserve_share": (0.0, 10.0),
    "reserve_places": (0.0, 10.0),
    "reserve_load": (0.0, 10.0),
    "size_weight": (0.0, 1e3),
    "broken_weight": (0.0, 1e3),
    "triage_weight": (0.0, 1e3),
    "work_stretch": (0.0, 100.0),
    "token_margin": (0.1, 1.0),
    "max_preemptions": (0, 100),
    "admission_quantile": (0.01, 0.9999),
    "admission_margin_ms": (0.0, 1e6),
    "window_extra": (0, 1024),
}
_WHOLE = {"min_prefill_tokens", "max_preemptions", "window_extra"}
_SWITCHES = {"step_budget", "pause_decodes", "shed_lost"}


def _parse(name: str, value: Any) -> Any:
    if name == "order":
        try:
            return Order(value)
        except ValueError:
            raise PolicyInvalid(name, value, f"use one of {', '.join(Order)}") from None
    if name == "urgency":
        try:
            return UrgencyProfile.from_mapping(value)
        except UrgencyProfileInvalid as invalid:
            raise PolicyInvalid(f"{name}.{invalid.field}", invalid.given, invalid.fix) from None
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise PolicyInvalid(name, value, "write true or false")
        return value
    if name == "admission_quantile" and value is None:
        return None
    least, most = _RANGES[name]
    if name in _WHOLE:
        return whole(name, value, int(least), int(most), error=PolicyInvalid)
    return number(name, value, least, most, error=PolicyInvalid)
