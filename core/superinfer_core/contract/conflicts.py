"""Where contracts contradict each other or what the pools offer: both sides, and what would settle it.

Every check is a pure function that returns problems; none of them decides who has to give way, except by the
`subject` it is told.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.field_errors import closest
from superinfer_core.contract.inheritance import Fields, objectives_of
from superinfer_core.contract.problems import ContractProblem, ProblemKind
from superinfer_core.slo import Isolation, Metric, Objective

_COMPARED_NAMES: Final = 200


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The best an idle chiplet of a pool does, in milliseconds, at the prediction quantile; None unknown."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None

    def of(self, metric: Metric) -> float | None:
        """The figure of one metric."""
        if metric is Metric.TTFT:
            return self.ttft_ms
        return self.itl_ms if metric is Metric.ITL else self.e2e_ms


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What a contract may count on from a pool.

    Attributes:
        namespace, name: identity.
        allowed_namespaces: further namespaces whose contracts may use it.
        isolation: what it offers.
        max_chiplets: most chiplets it may grow to, None unknown.
        product: GPU product, None unknown.
        memory_mib: GPU memory of one chiplet, None unknown.
        unloaded: best times of any chiplet shape of the pool, None unknown.
        created, uid: age, for contracts that name no pool.
    """

    namespace: str
    name: str
    allowed_namespaces: frozenset[str] = frozenset()
    isolation: Isolation = Isolation.SHARED
    max_chiplets: int | None = None
    product: str | None = None
    memory_mib: int | None = None
    unloaded: Unloaded | None = None
    created: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    def serves(self, namespace: str) -> bool:
        """Whether contracts of a namespace may use it."""
        return namespace == self.namespace or namespace in self.allowed_namespaces


@dataclass(frozen=True, slots=True)
class Looser:
    """A field that allows more than a bound above it."""

    path: str
    value: str
    bound_path: str
    bound: str
    bound_origin: str
    at_most: str


def looser_than(parent: Fields, own: Fields) -> list[Looser]:
    """Fields a child states that are looser than what its parent promises.

    The parent's P99 bounds the child's lower percentiles, too: what holds for 99 % holds for 95 %.
    """
    found = _looser_objectives(parent, own)
    for path, unit in (
        ("maxJitterMs", " ms"),
        ("quota.requestsPerSecond", " requests/s"),
        ("quota.tokensPerMinute", " tokens/min"),
        ("quota.concurrency", " requests"),
    ):
        mine, theirs = own.get(path), parent.get(path)
        if mine is not None and theirs is not None and mine.value > theirs.value:
            bound = f"{theirs.value}{unit}"
            found.append(Looser(path, f"{mine.value}{unit}", path, bound, theirs.origin, f"at most {bound}"))
    mine, theirs = own.get("availability"), parent.get("availability")
    if mine is not None and theirs is not None and float(mine.value) < float(theirs.value):
        bound = f"{theirs.value} %"
        found.append(
            Looser(
                "availability", f"{mine.value} %", "availability", bound, theirs.origin, f"at least {bound}"
            )
        )
    path = "resources.isolation"
    mine, theirs = own.get(path), parent.get(path)
    if mine is not None and theirs is not None and mine.value.strength < theirs.value.strength:
        bound = theirs.value.value
        found.append(Looser(path, mine.value.value, path, bound, theirs.origin, f"{bound} or stronger"))
    return found


def _looser_objectives(parent: Fields, own: Fields) -> list[Looser]:
    bounds = objectives_of(parent)
    found = []
    for path, objective, _ in objectives_of(own):
        broken = [
            (bound, bound_path, origin)
            for bound_path, bound, origin in bounds
            if bound.metric is objective.metric
            and objective.percentile <= bound.percentile
            and objective.target_ms > bound.target_ms
        ]
        if broken:
            bound, bound_path, origin = min(broken, key=lambda item: item[0].target_ms)
            found.append(
                Looser(
                    path,
                    f"{objective.target_ms} ms",
                    bound_path,
                    f"{bound.target_ms} ms",
                    origin,
                    f"at most {bound.target_ms} ms",
                )
            )
    return found


def looser_problem(
    *, subject: str, child: str, parent: str, looser: Looser, blame_parent: bool
) -> ContractProblem:
    """The conflict, told to the child or (where the child was there first) to the parent."""
    above = f"{parent}'s {looser.bound_path} of {looser.bound}"
    if looser.bound_origin != parent:
        above += f" (stated by {looser.bound_origin})"
    message = f"{child} states {looser.path} of {looser.value}, looser than {above}"
    rename = f"give {child} a serviceID that does not begin with {parent.rpartition('/')[2]}-"
    if blame_parent:
        message += f"; {child} was there first"
        suggestion = f"loosen {looser.bound_path} to {looser.value}, tighten {child}, or {rename}"
    else:
        suggestion = f"write {looser.at_most}, loosen {looser.bound_origin}, or {rename}"
    return ContractProblem(
        ProblemKind.LOOSER_THAN_PARENT,
        subject=subject,
        other=child if blame_parent else looser.bound_origin,
        field=looser.bound_path if blame_parent else looser.path,
        message=message,
        suggestion=suggestion,
    )


def not_found_suggestion(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """`did you mean X?` where a known name is close, else the general advice."""
    # Comparing spellings is slow; among thousands of contracts only likely ones are compared.
    likely = sorted(other for other in known if other[:1] == name[:1] and abs(len(other) - len(name)) <= 2)
    meant = closest(name, likely[:_COMPARED_NAMES])
    return f"did you mean {meant}? Otherwise {otherwise}" if meant is not None else otherwise


def feasibility_problems(
    subject: str, contract: EffectiveContract, pool: PoolFacts, pools: Mapping[str, PoolFacts]
) -> list[ContractProblem]:
    """Targets no chiplet of the pool meets even idle, and resources it does not have."""
    problems = _resource_problems(subject, contract, pool)
    for objective in contract.objectives:
        best = pool.unloaded.of(objective.metric) if pool.unloaded is not None else None
        if best is None or objective.target_ms >= best:
            continue
        able = _able(objective, contract.namespace, pools.values())
        elsewhere = f", or use a pool that can: {', '.join(able)}" if able else ""
        problems.append(
            ContractProblem(
                ProblemKind.TARGETS_UNREACHABLE,
                subject=subject,
                other=pool.key,
                field=f"objectives[{objective.metric.value} P{objective.percentile:g}]",
                message=(
                    f"{contract.key} promises {objective.metric.value} within {objective.target_ms} ms, but "
                    f"the best an idle chiplet of pool {pool.key} does is {best:g} ms"
                ),
                suggestion=f"write at least {math.ceil(best)} ms{elsewhere}",
            )
        )
    return problems


def _able(objective: Objective, namespace: str, pools: Iterable[PoolFacts]) -> Sequence[str]:
    able = []
    for pool in pools:
        best = pool.unloaded.of(objective.metric) if pool.unloaded is not None else None
        if best is not None and best <= objective.target_ms and pool.serves(namespace):
            able.append(pool.key)
    return sorted(able)[:5]


def _resource_problems(subject: str, contract: EffectiveContract, pool: PoolFacts) -> list[ContractProblem]:
    wants = contract.resources
    short: list[tuple[str, object, object]] = []
    if (
        wants.min_chiplets is not None
        and pool.max_chiplets is not None
        and wants.min_chiplets > pool.max_chiplets
    ):
        short.append(("minChiplets", wants.min_chiplets, pool.max_chiplets))
    if wants.product is not None and pool.product is not None and wants.product != pool.product:
        short.append(("product", wants.product, pool.product))
    if wants.memory_mib is not None and pool.memory_mib is not None and wants.memory_mib > pool.memory_mib:
        short.append(("memoryMiB", wants.memory_mib, pool.memory_mib))
    if wants.isolation is not None and wants.isolation.strength > pool.isolation.strength:
        short.append(("isolation", wants.isolation.value, pool.isolation.value))
    return [
        ContractProblem(
            ProblemKind.RESOURCES_UNAVAILABLE,
            subject=subject,
            other=pool.key,
            field=f"resources.{field}",
            message=f"{contract.key} asks for {field} {wanted}, but pool {pool.key} offers {offered}",
            suggestion=f"ask for {offered}, or refer to a pool that offers {wanted}",
        )
        for field, wanted, offered in short
    ]
