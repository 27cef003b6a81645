"""Resolution of thousands of contracts, of which few change at a time.

Contracts only ever refer to contracts of their own namespace, and only pools that serve a namespace, or that
its contracts name, can matter to it. So a namespace is resolved anew when one of its contracts changed or
when what is known of those pools did, and is otherwise what it was; a contract that comes out equal stays the
same object. Keeps what it resolved; used by one task.
"""

from collections.abc import Iterable, Mapping, Sequence

from superinfer_core.contract.conflicts import PoolFacts
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.pool_promises import PoolPromises, promises_by_pool
from superinfer_core.contract.resolution import ResolvedContract, resolve_contracts

_Inputs = tuple[tuple[StoredContract, ...], tuple[PoolFacts, ...]]


class Resolver:
    """Resolves all contracts, namespace by namespace."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Inputs, Mapping[str, ResolvedContract]]] = {}
        self.resolved_namespaces = 0
        """Namespaces resolved anew in the last call."""
        self.promises: Mapping[str, PoolPromises] = {}
        """What the contracts in effect promise, by pool."""

    def resolve(
        self, contracts: Iterable[StoredContract], pools: Iterable[PoolFacts]
    ) -> Iterable[tuple[str, ResolvedContract]]:
        """Every contract after resolution, by object key."""
        by_namespace: dict[str, list[StoredContract]] = {}
        for contract in contracts:
            by_namespace.setdefault(contract.namespace, []).append(contract)
        facts = sorted(pools, key=lambda pool: pool.key)
        self.resolved_namespaces = 0
        after: dict[str, tuple[_Inputs, Mapping[str, ResolvedContract]]] = {}
        for namespace in sorted(by_namespace):
            stored = tuple(by_namespace[namespace])
            inputs = (stored, _that_matter(namespace, stored, facts))
            known = self._known.get(namespace)
            if known is None or not _same(known[0], inputs):
                self.resolved_namespaces += 1
                before = known[1] if known is not None else {}
                known = (inputs, _resolved(inputs, before))
            after[namespace] = known
        gone = self._known.keys() - after.keys()
        self._known = after
        if self.resolved_namespaces or gone:
            found = (one.effective for _, resolved in after.values() for one in resolved.values())
            self.promises = promises_by_pool(one for one in found if one is not None)
        return [item for _, resolved in after.values() for item in resolved.items()]


def _that_matter(
    namespace: str, contracts: Sequence[StoredContract], pools: Sequence[PoolFacts]
) -> tuple[PoolFacts, ...]:
    named = {
        f"{contract.spec.pool_ref.namespace or namespace}/{contract.spec.pool_ref.name}"
        for contract in contracts
        if contract.spec is not None and contract.spec.pool_ref is not None
    }
    return tuple(pool for pool in pools if pool.key in named or pool.serves(namespace))


def _resolved(inputs: _Inputs, before: Mapping[str, ResolvedContract]) -> dict[str, ResolvedContract]:
    found = resolve_contracts(*inputs).contracts
    return {key: before[key] if before.get(key) == contract else contract for key, contract in found.items()}


def _same(before: _Inputs, now: _Inputs) -> bool:
    # Records are replaced when they change, so identity is enough, and cheap, for contracts.
    return (
        len(before[0]) == len(now[0])
        and all(a is b for a, b in zip(before[0], now[0], strict=True))
        and before[1] == now[1]
    )
