"""Pools and fallbacks of accepted contracts: what their references mean, and what cannot be resolved.

A reference that cannot be resolved costs the contract what it referred to and nothing more, and never anybody
else. Of two contracts whose fallbacks lead back to each other the older keeps its fallback. A contract that
names no pool gets the only one its namespace may use, of several the oldest: a new pool changes nothing for
contracts that already work. Pure, apart from the FallbackEdges that one resolution fills.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from superinfer_core.contract.conflicts import PoolFacts, not_found_suggestion
from superinfer_core.contract.inheritance import Fields
from superinfer_core.contract.linking import Linked, Linker
from superinfer_core.contract.problems import ContractProblem, ProblemKind
from superinfer_core.slo import OnInfeasible


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """What a poolRef means: a key to use, the facts where known, and what is wrong."""

    key: str | None
    facts: PoolFacts | None = None
    problem: ContractProblem | None = None


def choose_pool(contract: Linked, fields: Fields, pools: Mapping[str, PoolFacts] | None) -> PoolChoice:
    """The pool of a contract; `pools` is None where nobody knows the pools (then the name is taken as is)."""
    namespace = contract.stored.namespace
    stated = fields.get("poolRef")
    if stated is not None:
        key = f"{stated.value.namespace or namespace}/{stated.value.name}"
        return PoolChoice(key) if pools is None else _named_pool(contract, key, pools)
    if pools is None:
        return PoolChoice(None)
    usable = [pool for pool in pools.values() if pool.serves(namespace)]
    if not usable:
        problem = _pool_not_found(contract, "", "", f"create a ChipletPool that allows namespace {namespace}")
        return PoolChoice(None, problem=problem)
    oldest = min(usable, key=lambda p: (p.created.removesuffix("Z"), p.uid, p.namespace != namespace, p.key))
    return PoolChoice(oldest.key, oldest)


def _named_pool(contract: Linked, key: str, pools: Mapping[str, PoolFacts]) -> PoolChoice:
    facts = pools.get(key)
    namespace = contract.stored.namespace
    if facts is None:
        usable = [pool.key for pool in pools.values() if pool.serves(namespace)]
        suggestion = not_found_suggestion(key, usable, otherwise=f"create the ChipletPool {key}")
        return PoolChoice(key, problem=_pool_not_found(contract, key, key, suggestion))
    if facts.serves(namespace):
        return PoolChoice(key, facts)
    problem = ContractProblem(
        ProblemKind.POOL_NOT_ALLOWED,
        subject=contract.key,
        other=key,
        field="poolRef",
        message=f"pool {key} does not allow contracts of namespace {namespace}",
        suggestion=f"add {namespace} to allowedNamespaces of {key}, or refer to another pool",
    )
    return PoolChoice(None, facts, problem)


def _pool_not_found(contract: Linked, other: str, key: str, suggestion: str) -> ContractProblem:
    what = f"pool {key} does not exist" if key else f"no pool serves namespace {contract.stored.namespace}"
    return ContractProblem(
        ProblemKind.POOL_NOT_FOUND,
        subject=contract.key,
        other=other,
        field="poolRef",
        message=f"{contract.service_key}: {what}",
        suggestion=suggestion,
    )


@dataclass(frozen=True, slots=True)
class FallbackChoice:
    """What a fallbackRef means: a contract, or why there is none."""

    key: str | None = None
    problem: ContractProblem | None = None


class FallbackEdges:
    """Fallbacks chosen so far, never a circle; each contract has at most one."""

    def __init__(self) -> None:
        self._next: dict[str, str] = {}
        # Where a chain leads, with shortcuts: long chains must not cost the square of their length.
        self._shortcut: dict[str, str] = {}

    def add(self, contract: str, fallback: str) -> None:
        """Remember a choice; way_back must have said that it closes no circle."""
        self._next[contract] = self._shortcut[contract] = fallback

    def way_back(self, start: str, first: str) -> list[str] | None:
        """The way from `start` (which has no fallback yet) over `first` back to `start`, or None."""
        if self._end(first) != start:
            return None
        way, here = [start], first
        while here != start and len(way) < 8:
            way.append(here)
            here = self._next[here]
        return [*way, start] if here == start else [*way, "…", start]

    def _end(self, contract: str) -> str:
        passed = []
        while contract in self._shortcut:
            passed.append(contract)
            contract = self._shortcut[contract]
        for key in passed:
            self._shortcut[key] = contract
        return contract


def choose_fallback(linker: Linker, contract: Linked, fields: Fields, edges: FallbackEdges) -> FallbackChoice:
    """The fallback of a contract, beside those that older ones have already; `edges` is not changed."""
    if fields["onInfeasible"].value is not OnInfeasible.FALLBACK:
        return FallbackChoice()
    stated = fields.get("fallbackRef")
    if stated is None:
        message = f"{contract.service_key} says onInfeasible: Fallback, but names no fallbackRef"
        suggestion = "add fallbackRef, or write Degrade or Reject"
        problem = _fallback_problem(contract, ProblemKind.FALLBACK_MISSING, "", message, suggestion)
        return FallbackChoice(problem=replace(problem, field="onInfeasible"))
    target = linker.named(contract.stored.namespace, stated.value)
    if target is None or not target.accepted:
        state = "does not exist" if target is None else "is not accepted itself"
        suggestion = not_found_suggestion(
            stated.value,
            linker.names(contract.stored.namespace) if target is None else (),
            otherwise=f"create or mend {stated.value}; until then such requests are refused",
        )
        message = f"fallback {contract.stored.namespace}/{stated.value} of {contract.service_key} {state}"
        kind = ProblemKind.FALLBACK_NOT_FOUND
        return FallbackChoice(problem=_fallback_problem(contract, kind, stated.value, message, suggestion))
    way = edges.way_back(contract.service_key, target.service_key)
    if way is None:
        return FallbackChoice(key=target.service_key)
    if stated.origin != contract.service_key:
        # A parent's fallback is often one of its own children: that child simply has none.
        return FallbackChoice()
    message = f"fallbacks go round in a circle: {' -> '.join(way)}"
    suggestion = f"name another fallback for {contract.service_key}; until then its requests are refused"
    kind = ProblemKind.FALLBACK_CYCLE
    return FallbackChoice(problem=_fallback_problem(contract, kind, target.service_key, message, suggestion))


def _fallback_problem(
    contract: Linked, kind: ProblemKind, other: str, message: str, suggestion: str
) -> ContractProblem:
    return ContractProblem(
        kind, subject=contract.key, other=other, field="fallbackRef", message=message, suggestion=suggestion
    )


def by_key(pools: Iterable[PoolFacts]) -> dict[str, PoolFacts]:
    """Pools by their key."""
    return {pool.key: pool for pool in pools}
