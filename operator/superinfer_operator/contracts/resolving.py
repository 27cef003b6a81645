"""Resolution of thousands of contracts, of which few change at a time.

Contracts only ever refer to contracts of their own namespace, so a namespace is resolved anew when one of
its contracts changed or when what is known of the pools did, and is otherwise what it was. Keeps what it
resolved; used by one task.
"""

from collections.abc import Iterable, Mapping

from superinfer_core.contract.conflicts import PoolFacts
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.resolution import ResolvedContract, resolve_contracts

_Inputs = tuple[tuple[StoredContract, ...], tuple[PoolFacts, ...]]


class Resolver:
    """Resolves all contracts, namespace by namespace."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Inputs, Mapping[str, ResolvedContract]]] = {}
        self.resolved_namespaces = 0
        """Namespaces resolved anew in the last call."""

    def resolve(
        self, contracts: Iterable[StoredContract], pools: Iterable[PoolFacts]
    ) -> Iterable[tuple[str, ResolvedContract]]:
        """Every contract after resolution, by object key, and which changed is up to the caller."""
        by_namespace: dict[str, list[StoredContract]] = {}
        for contract in contracts:
            by_namespace.setdefault(contract.namespace, []).append(contract)
        facts = tuple(sorted(pools, key=lambda pool: pool.key))
        self.resolved_namespaces = 0
        after: dict[str, tuple[_Inputs, Mapping[str, ResolvedContract]]] = {}
        for namespace in sorted(by_namespace):
            inputs = (tuple(by_namespace[namespace]), facts)
            known = self._known.get(namespace)
            if known is None or not _same(known[0], inputs):
                self.resolved_namespaces += 1
                known = (inputs, resolve_contracts(inputs[0], facts).contracts)
            after[namespace] = known
        self._known = after
        return [item for _, resolved in after.values() for item in resolved.items()]


def _same(before: _Inputs, now: _Inputs) -> bool:
    # Records are replaced when they change, so identity is enough, and cheap, for contracts.
    return (
        len(before[0]) == len(now[0])
        and all(a is b for a, b in zip(before[0], now[0], strict=True))
        and before[1] == now[1]
    )
