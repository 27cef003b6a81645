"""All contracts together: which are in effect, with which fields from where, and what is wrong with the rest.

`resolve_contracts` never raises for what a contract says: a bad contract has problems, the others have none
because of it. The result is immutable and depends only on the set of contracts and pools, not on their order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from superinfer_core.contract.conflicts import PoolFacts, feasibility_problems
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.inheritance import (
    Fields,
    Stated,
    StoredContract,
    effective_contract,
    with_defaults,
)
from superinfer_core.contract.linking import Linked, Linker
from superinfer_core.contract.problems import ContractConflictError, ContractProblem
from superinfer_core.contract.references import (
    FallbackEdges,
    PoolChoice,
    by_key,
    choose_fallback,
    choose_pool,
)
from superinfer_core.slo import OnInfeasible


@dataclass(frozen=True, slots=True)
class ResolvedContract:
    """One stored contract after resolution.

    Attributes:
        key: "namespace/name" of the object.
        service_key: "namespace/serviceID".
        generation: metadata.generation that was looked at.
        effective: None where it is not in effect.
        fields: every effective field by path, with its origin.
        problems: empty where all is well.
        parent: service key of the parent.
        accepted: it is valid and contradicts nothing that was there first.
        pool_known, pool_measured: whether feasibility could be judged, wholly with a profile.
    """

    key: str
    service_key: str
    generation: int
    effective: EffectiveContract | None
    fields: Fields
    problems: tuple[ContractProblem, ...]
    parent: str | None
    accepted: bool
    pool_known: bool = False
    pool_measured: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    """All contracts after resolution.

    Attributes:
        effective: contracts in effect, by "namespace/serviceID".
        problems: by object key "namespace/name", only of contracts that have some.
        contracts: every stored contract, by object key.
    """

    effective: Mapping[str, EffectiveContract]
    problems: Mapping[str, tuple[ContractProblem, ...]]
    contracts: Mapping[str, ResolvedContract]

    def raise_on_conflict(self) -> None:
        """Raise ContractConflictError with every problem, for callers that take all or nothing."""
        if self.problems:
            raise ContractConflictError(tuple(p for problems in self.problems.values() for p in problems))


def resolve_contracts(
    contracts: Iterable[StoredContract], pools: Iterable[PoolFacts] | None = None
) -> Resolution:
    """Resolve inheritance, references and feasibility of all contracts.

    Args:
        contracts: everything stored, in any order.
        pools: what is known of the pools; None where there are none to know (references are taken as is).
    """
    linker = Linker(contracts)
    known = None if pools is None else by_key(pools)
    edges = FallbackEdges()
    # Fallbacks are chosen oldest first, so that the newest is the one that may not close a circle.
    ages = linker.ages_of("fallbackRef")
    by_age = sorted(linker.linked.values(), key=lambda linked: ages[linked.key])
    resolved = {linked.key: _resolved(linked, linker, edges, known) for linked in by_age}
    return Resolution(
        effective=MappingProxyType(
            {r.service_key: r.effective for r in resolved.values() if r.effective is not None}
        ),
        problems=MappingProxyType({key: r.problems for key, r in resolved.items() if r.problems}),
        contracts=MappingProxyType(resolved),
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A contract with one choice of fields."""

    contract: EffectiveContract
    fields: Fields
    pool: PoolChoice
    problems: tuple[ContractProblem, ...]


def _resolved(
    linked: Linked, linker: Linker, edges: FallbackEdges, pools: Mapping[str, PoolFacts] | None
) -> ResolvedContract:
    if not linked.accepted:
        return _report(linked, None, {}, tuple(linked.problems), None)
    stated: Fields | None = linked.fields
    outcome = None
    while stated is not None:
        outcome = _outcome(linked, with_defaults(stated), linker, edges, pools)
        without = (linked.without_imposed(stated, problem.field) for problem in outcome.problems)
        stated = next((fields for fields in without if fields is not None), None)
    assert outcome is not None
    if outcome.contract.fallback is not None:
        edges.add(linked.service_key, outcome.contract.fallback)
    effective = None if _shut_out(outcome.pool) else outcome.contract
    return _report(linked, effective, outcome.fields, outcome.problems, outcome.pool)


def _outcome(
    linked: Linked,
    fields: Fields,
    linker: Linker,
    edges: FallbackEdges,
    pools: Mapping[str, PoolFacts] | None,
) -> _Outcome:
    pool = choose_pool(linked, fields, pools)
    fallback = choose_fallback(linker, linked, fields, edges)
    problems = [choice.problem for choice in (pool, fallback) if choice.problem is not None]
    if fields["onInfeasible"].value is OnInfeasible.FALLBACK and fallback.key is None:
        # Without its fallback it refuses: serving as best effort is not what it says.
        fields = {**fields, "onInfeasible": Stated(OnInfeasible.REJECT, "default without a fallback")}
    contract = effective_contract(
        namespace=linked.stored.namespace,
        service_id=linked.stored.service_id,
        fields=fields,
        parent=linked.parent.service_key if linked.parent is not None else None,
        pool=pool.key,
        fallback=fallback.key,
    )
    if pool.facts is not None and pool.problem is None:
        problems += feasibility_problems(linked.key, contract, pool.facts, pools or {})
    return _Outcome(contract, fields, pool, tuple(problems))


def _shut_out(pool: PoolChoice) -> bool:
    """A pool that does not allow the namespace: serving anyway would be a breach, not a favour."""
    return pool.problem is not None and pool.facts is not None


def _report(
    linked: Linked,
    effective: EffectiveContract | None,
    fields: Fields,
    problems: tuple[ContractProblem, ...],
    pool: PoolChoice | None,
) -> ResolvedContract:
    facts = pool.facts if pool is not None and pool.problem is None else None
    return ResolvedContract(
        key=linked.key,
        service_key=linked.service_key,
        generation=linked.stored.generation,
        effective=effective,
        fields=MappingProxyType(dict(fields)),
        problems=problems,
        parent=linked.parent.service_key if linked.parent is not None else None,
        accepted=linked.accepted,
        pool_known=facts is not None,
        pool_measured=facts is not None and facts.unloaded is not None,
    )
