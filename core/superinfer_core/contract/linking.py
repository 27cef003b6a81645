"""Which contract inherits from which, and who gives way where two contradict each other.

One rule settles every conflict: what was there first goes on working. Contracts are taken in order of age
(creation time, then UID), a contract that names its parent being as old as the youngest it needs: it could
not work before. A newcomer that contradicts what stands is not accepted and changes nothing for the others:
- of two with one serviceID the older keeps it;
- a child looser than its parent is not accepted, unless the parent is the newcomer and became one only by
  its serviceID being a prefix: then the parent is not accepted;
- in a cycle of parentRefs nobody was first, so none of its members is accepted.

A Linker is filled once and read afterwards; it is local to one resolution.
"""

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from superinfer_core.contract.conflicts import looser_problem, looser_than, not_found_suggestion
from superinfer_core.contract.inheritance import Fields, Stated, StoredContract, inherit, own_fields
from superinfer_core.contract.problems import ContractProblem, FieldProblem, ProblemKind


@dataclass(slots=True, eq=False)
class Linked:
    """One contract while it is being linked."""

    stored: StoredContract
    key: str
    own: Fields
    accepted: bool = False
    decided: bool = False
    explicit: bool = False
    working_age: tuple[str, ...] | None = None
    parent: "Linked | None" = None
    fields: Fields = field(default_factory=dict)
    children: list["Linked"] = field(default_factory=list)
    problems: list[ContractProblem] = field(default_factory=list)

    @property
    def service_key(self) -> str:
        """namespace/serviceID."""
        return self.stored.service_key

    def ancestors(self) -> Iterator["Linked"]:
        """The parent, its parent, and so on."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def without_imposed(self, fields: Fields, path: str) -> dict[str, Stated] | None:
        """The fields without what came for `path` through a younger parent; None where nothing did.

        Inheritance by prefix is live, so a newcomer's fields reach contracts that are older. Where such a
        field turns out to be broken (a pool that is not there, a target nobody can meet), the older contract
        goes on with what the next parent up states, or with the default.
        """
        stated = fields.get(path)
        if stated is None or stated.origin == self.service_key:
            return None
        above = list(self.ancestors())
        origin = next((i for i, parent in enumerate(above) if parent.service_key == stated.origin), None)
        if origin is None:
            return None
        youngest = max(parent.working_age or () for parent in above[: origin + 1])
        if youngest <= (self.working_age or ()):
            return None
        rest = {other: value for other, value in fields.items() if other != path}
        instead = next((parent.own[path] for parent in above[origin + 1 :] if path in parent.own), None)
        return rest if instead is None else rest | {path: instead}


class Linker:
    """Links contracts and decides which are accepted."""

    def __init__(self, contracts: Iterable[StoredContract]) -> None:
        self.linked: dict[str, Linked] = {}
        self._by_name: dict[str, Linked] = {}
        self._holders: dict[str, Linked] = {}
        self._accepted_ids: dict[str, list[str]] = {}
        for stored in sorted(contracts, key=lambda contract: contract.age_key):
            self._add(stored)
        self.linked = dict(sorted(self.linked.items(), key=lambda item: self._working_age(item[1])))
        for contract in self.linked.values():
            self._decide_with_parents(contract)

    def named(self, namespace: str, name: str) -> Linked | None:
        """The contract a reference means, by object name or by serviceID; of two the older."""
        key = f"{namespace}/{name}"
        named, holder = self._by_name.get(key), self._holders.get(key)
        if named is None or holder is None:
            return named or holder
        return min(named, holder, key=lambda linked: linked.stored.age_key)

    def names(self, namespace: str) -> list[str]:
        """Names a reference in a namespace could have meant."""
        return [linked.stored.name for linked in self.linked.values() if linked.stored.namespace == namespace]

    def ages_of(self, path: str) -> dict[str, tuple[str, ...]]:
        """By key, since when a contract has its `path`: as old as the youngest link it came through."""
        ages: dict[str, tuple[str, ...]] = {}
        for linked in self.linked.values():
            chain, here = [], linked
            while here.key not in ages and path not in here.own and here.parent is not None:
                chain.append(here)
                here = here.parent
            age = ages.setdefault(here.key, here.working_age or ())
            for member in reversed(chain):
                age = max(age, member.working_age or ())
                ages[member.key] = age
        return ages

    def _add(self, stored: StoredContract) -> None:
        key, again = stored.object_key, 1
        while key in self.linked:
            again += 1
            key = f"{stored.object_key} ({again})"
        own = own_fields(stored.spec, stored.service_key) if stored.spec is not None else {}
        linked = Linked(stored, key, own)
        self.linked[key] = linked
        self._by_name.setdefault(stored.object_key, linked)
        if stored.spec is None:
            linked.decided = True
            linked.problems += [_invalid_problem(key, problem) for problem in stored.invalid]
            return
        holder = self._holders.setdefault(stored.service_key, linked)
        if holder is not linked:
            linked.decided = True
            linked.problems.append(_duplicate_problem(linked, holder))

    def _working_age(self, contract: Linked) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """When it could first work, then its own age; ages along a chain are worked out once."""
        chain: list[Linked] = []
        met: set[str] = set()
        here: Linked | None = contract
        while here is not None and here.working_age is None and here.key not in met:
            chain.append(here)
            met.add(here.key)
            here = self._explicit_parent(here)
        age = here.working_age if here is not None and here.working_age is not None else ()
        for member in reversed(chain):
            age = max(age, member.stored.age_key)
            member.working_age = age
        assert contract.working_age is not None
        return contract.working_age, contract.stored.age_key

    def _decide_with_parents(self, contract: Linked) -> None:
        """Decide a contract after everything it refers to; a chain may be long, so no recursion."""
        chain: list[Linked] = []
        met: set[str] = set()
        here: Linked | None = contract
        while here is not None and not here.decided and here.key not in met:
            chain.append(here)
            met.add(here.key)
            here = self._explicit_parent(here)
        if here is not None and here.key in met:
            cycle = chain[chain.index(here) :]
            for member in cycle:
                member.decided = True
                member.problems.append(_cycle_problem(member, cycle))
        for member in reversed(chain):
            if not member.decided:
                self._decide(member)

    def _explicit_parent(self, contract: Linked) -> Linked | None:
        spec = contract.stored.spec
        if spec is None or spec.parent_ref is None:
            return None
        return self.named(contract.stored.namespace, spec.parent_ref.name)

    def _decide(self, contract: Linked) -> None:
        contract.decided = True
        spec = contract.stored.spec
        assert spec is not None
        contract.explicit = spec.parent_ref is not None
        parent = self._explicit_parent(contract) if contract.explicit else self._prefix_parent(contract)
        if spec.parent_ref is not None and (parent is None or not parent.accepted):
            contract.problems.append(self._missing_parent(contract, spec.parent_ref.name, parent))
            return
        if parent is not None:
            loose = looser_than(parent.fields, contract.own)
            contract.problems += [
                looser_problem(
                    subject=contract.key,
                    child=contract.service_key,
                    parent=parent.service_key,
                    looser=looser,
                    blame_parent=False,
                )
                for looser in loose
            ]
        contract.parent = parent
        contract.fields = inherit(parent.fields, contract.own) if parent is not None else contract.own
        adopted = list(self._would_adopt(contract))
        for child in adopted:
            contract.problems += self._objections(contract, child)
        if contract.problems:
            contract.parent = None
            return
        self._accept(contract, adopted)

    def _prefix_parent(self, contract: Linked) -> Linked | None:
        """The accepted contract with the longest dash-separated prefix of the serviceID."""
        prefix = contract.stored.service_id
        while prefix := prefix.rpartition("-")[0]:
            holder = self._holders.get(f"{contract.stored.namespace}/{prefix}")
            if holder is not None and holder.accepted:
                return holder
        return None

    def _would_adopt(self, parent: Linked) -> Iterator[Linked]:
        """Accepted contracts that would inherit from this one by their serviceID."""
        ids = self._accepted_ids.get(parent.stored.namespace, [])
        service_id = parent.stored.service_id
        # '.' follows '-' in ASCII, so this is exactly the range of ids that begin with "<serviceID>-".
        for at in range(bisect.bisect_left(ids, f"{service_id}-"), bisect.bisect_left(ids, f"{service_id}.")):
            child = self._holders[f"{parent.stored.namespace}/{ids[at]}"]
            if child.explicit:
                continue
            if child.parent is None or len(child.parent.stored.service_id) < len(service_id):
                yield child

    def _objections(self, newcomer: Linked, child: Linked) -> list[ContractProblem]:
        """Why a standing contract, or one below it, cannot live with a new parent."""
        if child in newcomer.ancestors():
            return [_cycle_problem(newcomer, [newcomer, child])]
        problems: list[ContractProblem] = []
        pending: list[tuple[Linked, Fields]] = [(child, newcomer.fields)]
        while pending:
            below, above_fields = pending.pop()
            problems += [
                looser_problem(
                    subject=newcomer.key,
                    child=below.service_key,
                    parent=newcomer.service_key,
                    looser=looser,
                    blame_parent=True,
                )
                for looser in looser_than(above_fields, below.own)
            ]
            fields = inherit(above_fields, below.own)
            pending += [(grandchild, fields) for grandchild in below.children]
        return problems

    def _accept(self, contract: Linked, adopted: list[Linked]) -> None:
        contract.accepted = True
        bisect.insort(
            self._accepted_ids.setdefault(contract.stored.namespace, []), contract.stored.service_id
        )
        if contract.parent is not None:
            contract.parent.children.append(contract)
        for child in adopted:
            if child.parent is not None:
                child.parent.children.remove(child)
            child.parent = contract
            contract.children.append(child)
        pending = list(adopted)
        while pending:
            below = pending.pop()
            assert below.parent is not None
            below.fields = inherit(below.parent.fields, below.own)
            pending += below.children

    def _missing_parent(self, contract: Linked, name: str, parent: Linked | None) -> ContractProblem:
        namespace = contract.stored.namespace
        if parent is not None:
            return ContractProblem(
                ProblemKind.PARENT_NOT_ACCEPTED,
                subject=contract.key,
                other=parent.key,
                field="parentRef",
                message=f"{contract.service_key} inherits from {parent.key}, which is not accepted itself",
                suggestion=f"mend {parent.key}, or refer to another parent",
            )
        return ContractProblem(
            ProblemKind.PARENT_NOT_FOUND,
            subject=contract.key,
            other=f"{namespace}/{name}",
            field="parentRef",
            message=f"{contract.service_key} inherits from {name}, which is not in namespace {namespace}",
            suggestion=not_found_suggestion(
                name, self.names(namespace), otherwise=f"create {name} first, or remove parentRef"
            ),
        )


def _invalid_problem(key: str, problem: FieldProblem) -> ContractProblem:
    found = f" (got {problem.value})" if problem.value else ""
    return ContractProblem(
        ProblemKind.INVALID_SPEC,
        subject=key,
        other="",
        field=problem.field,
        message=f"{problem.field} {problem.message}{found}",
        suggestion=problem.fix,
    )


def _duplicate_problem(contract: Linked, holder: Linked) -> ContractProblem:
    return ContractProblem(
        ProblemKind.DUPLICATE_SERVICE_ID,
        subject=contract.key,
        other=holder.key,
        field="serviceID",
        message=(
            f"{contract.key} and {holder.key} both have serviceID {contract.stored.service_id}; {holder.key} "
            f"was there first{f' ({holder.stored.created})' if holder.stored.created else ''} and keeps it"
        ),
        suggestion=f"create {contract.key} anew with another serviceID, or delete one of them",
    )


def _cycle_problem(contract: Linked, cycle: list[Linked]) -> ContractProblem:
    at = cycle.index(contract)
    path = [member.key for member in (*cycle[at:], *cycle[: at + 1])]
    shown_path = path if len(path) <= 8 else [*path[:6], "…", path[-1]]
    other = path[1] if len(path) > 1 else contract.key
    return ContractProblem(
        ProblemKind.PARENT_CYCLE,
        subject=contract.key,
        other=other,
        field="parentRef",
        message=f"parents go round in a circle: {' -> '.join(shown_path)}",
        suggestion=f"remove parentRef from one of them, for example {contract.key}",
    )
