"""What a single contract must satisfy beyond the bounds of its fields.

Field bounds are in the API models and in the CRD; here is what takes two fields to say. Pure.
"""

from typing import Final

from superinfer_core.api.v1alpha1.slocontract import ObjectiveSpec, SLOContract
from superinfer_core.contract.problems import FieldProblem
from superinfer_core.words import shown

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LEAST_WINDOW_S: Final = 10
GREATEST_WINDOW_S: Final = 30 * 86_400


def window_seconds(text: str) -> int:
    """Seconds of a checked window text such as 10m."""
    return int(text[:-1]) * _UNIT_S[text[-1]]


def contract_problems(contract: SLOContract) -> list[FieldProblem]:
    """Everything wrong with one contract by itself."""
    spec = contract.spec
    problems = _identity_problems(contract)
    problems += objective_problems(spec.objectives or [])
    if spec.window is not None and not LEAST_WINDOW_S <= window_seconds(spec.window) <= GREATEST_WINDOW_S:
        problems.append(
            FieldProblem("spec.window", shown(spec.window), "is out of range", "write between 10s and 30d")
        )
    for field, reference in (("parentRef", spec.parent_ref), ("fallbackRef", spec.fallback_ref)):
        if reference is not None and reference.name == contract.name:
            problems.append(
                FieldProblem(
                    f"spec.{field}.name",
                    shown(reference.name),
                    "refers to the contract itself",
                    "name another",
                )
            )
    return problems


def objective_problems(objectives: list[ObjectiveSpec]) -> list[FieldProblem]:
    """Pairs given twice, and bounds that another one makes pointless."""
    problems = []
    seen: dict[tuple[str, int], int] = {}
    for index, objective in enumerate(objectives):
        path, pair = f"spec.objectives[{index}]", (objective.metric.value, objective.percentile)
        if pair in seen:
            problems.append(
                FieldProblem(
                    path,
                    f"{pair[0]} P{pair[1]}",
                    f"is there twice (also objectives[{seen[pair]}])",
                    "keep one of them",
                )
            )
            continue
        seen[pair] = index
        tighter = [
            o
            for o in objectives
            if o.metric is objective.metric
            and o.percentile > objective.percentile
            and o.target_ms < objective.target_ms
        ]
        if tighter:
            other = min(tighter, key=lambda o: o.target_ms)
            problems.append(
                FieldProblem(
                    f"{path}.targetMs",
                    shown(objective.target_ms),
                    f"is looser than {other.metric} P{other.percentile} {other.target_ms} ms, which includes "
                    "it",
                    f"write at most {other.target_ms}, or remove it",
                )
            )
    return problems


def _identity_problems(contract: SLOContract) -> list[FieldProblem]:
    if not contract.name:
        return [FieldProblem("metadata.name", "", "is missing", "add metadata.name")]
    if contract.spec.service_id is None and ("." in contract.name or len(contract.name) > 63):
        return [
            FieldProblem(
                "spec.serviceID",
                "",
                "is missing, and metadata.name cannot be one (dots, or more than 63 characters)",
                "add spec.serviceID with lower-case letters, digits and dashes",
            )
        ]
    return []
