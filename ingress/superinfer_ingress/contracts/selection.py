"""Which contract a request is under, and whether its key may use it. Pure.

The order is the design's: the header; else the key's only contract; else the pool's default; else what
`withoutContract` says. An unknown id is an error, never best effort.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from superinfer_core.contract.conflicts import PoolFacts
from superinfer_core.contract.effective import EffectiveContract
from superinfer_core.contract.headers import CONTRACT_ID, split_contract_id
from superinfer_core.refusal import RefusalCode
from superinfer_core.slo import AccessMode
from superinfer_core.words import shown
from superinfer_ingress.contracts.keys import ApiKey
from superinfer_ingress.http.errors import refused

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Directory:
    """The contracts in effect, indexed the ways a request needs them.

    Attributes:
        by_key: by "namespace/serviceID".
        by_id: by serviceID, over namespaces.
        broken: why a contract that was written is not in effect, by "namespace/serviceID".
    """

    by_key: Mapping[str, EffectiveContract]
    by_id: Mapping[str, Sequence[EffectiveContract]]
    broken: Mapping[str, str]

    @classmethod
    def of(
        cls, contracts: Sequence[EffectiveContract], broken: Mapping[str, str] | None = None
    ) -> "Directory":
        """Index contracts."""
        by_id: dict[str, list[EffectiveContract]] = {}
        for contract in contracts:
            by_id.setdefault(contract.service_id, []).append(contract)
        return cls({contract.key: contract for contract in contracts}, by_id, broken or {})


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: a key, or anybody in open mode."""

    key: ApiKey | None
    open_mode: bool

    def administers(self, namespace: str) -> bool:
        """Whether this asker may read and change the contracts of a namespace."""
        return self.open_mode or (self.key is not None and self.key.administers(namespace))

    def may_use(self, contract: EffectiveContract) -> bool:
        """Whether the contract serves this asker."""
        if self.open_mode:
            return True
        if self.key is None:
            return False
        if contract.access is AccessMode.ANY_KEY:
            return True
        return (
            contract.namespace in self.key.namespaces
            and contract.api_key_secret is not None
            and contract.api_key_secret == self.key.secret
        )


def visible_pools(
    directory: Directory, asker: Asker, pools: Iterable[PoolFacts] | None
) -> frozenset[str] | None:
    """Pools an asker may know of: those its namespaces or contracts may use; None for every pool.

    One machine has no pools to tell apart (`pools` is None), and an administrator of all sees everything.
    """
    key = asker.key
    if pools is None or asker.open_mode or (key is not None and key.admin and key.admin_of is None):
        return None
    namespaces = asker.key.namespaces if asker.key is not None else ()
    own = {pool.key for pool in pools if any(pool.serves(namespace) for namespace in namespaces)}
    contracts = (contract for contract in directory.by_key.values() if asker.may_use(contract))
    return frozenset(own | {contract.pool for contract in contracts if contract.pool is not None})


def select(
    directory: Directory,
    asker: Asker,
    *,
    contract_id: str | None,
    pool_default: str | None,
    best_effort_allowed: bool,
) -> EffectiveContract | None:
    """The contract of one request; None for best effort.

    Raises:
        Refused: unknown_contract, forbidden, or invalid_slo where nothing says which one is meant.
    """
    if contract_id is not None:
        return _permitted(_named(directory, asker, contract_id), asker)
    if asker.key is not None:
        usable = [
            contract
            for contract in directory.by_key.values()
            if contract.namespace in asker.key.namespaces and asker.may_use(contract)
        ]
        own = [contract for contract in usable if contract.access is AccessMode.OWN_KEYS]
        only = own if len(own) == 1 else usable
        if len(only) == 1:
            return only[0]
    if pool_default is not None:
        contract = directory.by_key.get(pool_default)
        if contract is None:
            raise _unknown(directory, pool_default, "the pool's default contract")
        return _permitted(contract, asker)
    if best_effort_allowed:
        return None
    raise refused(
        RefusalCode.INVALID_SLO,
        f"{CONTRACT_ID}: missing; name the contract this request is under (GET /v1/contracts lists them)",
        CONTRACT_ID,
    )


def _named(directory: Directory, asker: Asker, contract_id: str) -> EffectiveContract:
    namespace, service_id = split_contract_id(contract_id)
    if namespace is not None:
        found = directory.by_key.get(contract_id)
        if found is None:
            raise _unknown(directory, contract_id, CONTRACT_ID)
        return found
    candidates = directory.by_id.get(service_id, ())
    if asker.key is not None and asker.key.namespaces:
        own = [c for c in candidates if c.namespace in asker.key.namespaces]
        candidates = own or [c for c in candidates if c.access is AccessMode.ANY_KEY or asker.open_mode]
    elif not asker.open_mode:
        candidates = [c for c in candidates if c.access is AccessMode.ANY_KEY]
    if len(candidates) > 1:
        in_default = [c for c in candidates if c.namespace == DEFAULT_NAMESPACE]
        candidates = in_default or candidates
    if len(candidates) > 1:
        names = ", ".join(sorted(c.key for c in candidates)[:5])
        raise refused(
            RefusalCode.INVALID_SLO,
            f"{CONTRACT_ID}: {shown(contract_id)} is in several namespaces; write one of {names}",
            CONTRACT_ID,
        )
    if not candidates:
        namespaces = asker.key.namespaces if asker.key is not None else (DEFAULT_NAMESPACE,)
        known = next(
            (f"{n}/{service_id}" for n in namespaces if f"{n}/{service_id}" in directory.broken), None
        )
        raise _unknown(directory, known or contract_id, CONTRACT_ID)
    return candidates[0]


def _permitted(contract: EffectiveContract, asker: Asker) -> EffectiveContract:
    if asker.may_use(contract):
        return contract
    raise refused(
        RefusalCode.FORBIDDEN,
        f"this key may not use contract {contract.key}; use a key of its Secret,"
        " or let the contract say access: {mode: AnyKey}",
        CONTRACT_ID,
    )


def _unknown(directory: Directory, contract_id: str, where: str) -> Exception:
    why = directory.broken.get(contract_id)
    if why is not None:
        return refused(
            RefusalCode.UNKNOWN_CONTRACT,
            f"{where}: contract {shown(contract_id)} is not in effect: {why}",
            where,
        )
    return refused(
        RefusalCode.UNKNOWN_CONTRACT,
        f"{where}: there is no contract {shown(contract_id)}; GET /v1/contracts lists those there are",
        where,
    )
