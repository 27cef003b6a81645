"""ChipletPools as the ingress needs them: who may use them, and which contract is their default. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.contract.conflicts import PoolFacts
from superinfer_core.pools.replicas import most_executors

_IDENTITY: Final = ("name", "namespace", "uid", "generation", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool.

    Attributes:
        facts: what contracts may count on.
        default_contract: object key `namespace/name` of the contract of requests that name none.
    """

    facts: PoolFacts
    default_contract: str | None


def pool_of(document: Mapping[str, Any]) -> Pool:
    """Read a ChipletPool.

    Raises:
        ValueError: the document is no pool this version understands.
    """
    # Labels and annotations are other tools' too, and more than a person would write.
    identity = {name: document["metadata"][name] for name in _IDENTITY if name in document["metadata"]}
    pool = ChipletPool.model_validate({"metadata": identity, "spec": document.get("spec")})
    metadata, spec = pool.metadata, pool.spec
    namespace, name = metadata.namespace or "default", metadata.name or ""
    default = spec.default_contract_ref
    return Pool(
        facts=PoolFacts(
            namespace=namespace,
            name=name,
            allowed_namespaces=frozenset(spec.allowed_namespaces or ()),
            isolation=spec.isolation,
            max_chiplets=most_executors(spec),
            created=metadata.creation_timestamp or "",
            uid=metadata.uid or "",
        ),
        default_contract=None if default is None else f"{default.namespace or namespace}/{default.name}",
    )
