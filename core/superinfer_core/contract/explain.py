"""Which effective field comes from which contract, for people (`superinfer contract explain`).

Pure; the rows are plain text so that a table and JSON show the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from superinfer_core.api.v1alpha1.meta import NamespacedRef
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.inheritance import objectives_of
from superinfer_core.contract.problems import ContractProblem
from superinfer_core.contract.resolution import Resolution, ResolvedContract
from superinfer_core.slo import Metric, Objective


@dataclass(frozen=True, slots=True)
class ExplainedField:
    """One effective field: its value and the contract that states it (or `default`)."""

    field: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One contract as it is in effect.

    Attributes:
        key: the stored object.
        service_key: its identity for requests.
        in_effect: whether requests are served under it.
        lineage: service keys from the contract up to the root.
        fields: every effective field, in reading order.
        deadlines: what one request is held to, in words.
        problems: what is wrong.
    """

    key: str
    service_key: str
    in_effect: bool
    lineage: tuple[str, ...]
    fields: tuple[ExplainedField, ...]
    deadlines: tuple[str, ...]
    problems: tuple[ContractProblem, ...]


_ORDER = (
    "tier",
    "priority",
    "objectives",
    "maxJitterMs",
    "availability",
    "window",
    "onInfeasible",
    "fallbackRef",
    "poolRef",
)


def explain(resolution: Resolution, key: str) -> Explanation | None:
    """Explain the contract with this service key (namespace/serviceID) or object key; None if unknown."""
    contract = next(
        (r for r in resolution.contracts.values() if r.service_key == key and r.effective is not None),
        resolution.contracts.get(key),
    )
    if contract is None:
        contract = next((r for r in resolution.contracts.values() if r.service_key == key), None)
    if contract is None:
        return None
    return Explanation(
        key=contract.key,
        service_key=contract.service_key,
        in_effect=contract.effective is not None,
        lineage=tuple(_lineage(resolution, contract)),
        fields=tuple(_rows(contract)),
        deadlines=tuple(_deadlines(contract.effective)) if contract.effective is not None else (),
        problems=contract.problems,
    )


def _lineage(resolution: Resolution, contract: ResolvedContract) -> Iterator[str]:
    by_service = {r.service_key: r for r in resolution.contracts.values() if r.fields}
    here: ResolvedContract | None = contract
    while here is not None:
        yield here.service_key
        here = by_service.get(here.parent) if here.parent is not None else None


def _rows(contract: ResolvedContract) -> Iterator[ExplainedField]:
    objectives = [path for path, _, _ in objectives_of(contract.fields)]

    def position(path: str) -> tuple[int, int, str]:
        head = path.partition("[")[0]
        index = _ORDER.index(head) if head in _ORDER else len(_ORDER)
        return (index, objectives.index(path) if path in objectives else 0, path)

    for path in sorted(contract.fields, key=position):
        stated = contract.fields[path]
        yield ExplainedField(path, shown_value(stated.value), stated.origin)
    if contract.effective is not None and contract.effective.pool and "poolRef" not in contract.fields:
        origin = "default: the oldest pool the namespace may use"
        yield ExplainedField("poolRef", contract.effective.pool, origin)


def shown_value(value: Any) -> str:
    """A field's value as a person would write it."""
    if isinstance(value, Objective):
        return f"{value.target_ms} ms"
    if isinstance(value, NamespacedRef):
        return f"{value.namespace}/{value.name}" if value.namespace else value.name
    return str(value.value) if isinstance(value, Enum) else str(value)


def _deadlines(contract: EffectiveContract) -> Iterator[str]:
    words = {
        Metric.TTFT: "first token within {} ms",
        Metric.ITL: "{} ms between tokens on average",
        Metric.E2E: "last token within {} ms",
    }
    for metric, text in words.items():
        if (target := contract.deadline_target_ms(metric)) is not None:
            yield text.format(target)
