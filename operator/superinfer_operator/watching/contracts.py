"""Facts about SLOContracts: what resolution takes, and what their status says already. Frozen.

A status is kept as a digest beside its conditions: thousands of contracts are held in memory, and all that is
asked of the rest is whether it is still what should be written.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from superinfer_core.api.v1alpha1.conditions import Condition, read_conditions
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import stored_from_resource


@dataclass(frozen=True, slots=True)
class ContractRecord:
    """A contract as it is stored.

    Attributes:
        stored: what resolution takes.
        conditions: of its status.
        digest: of its whole status, times of the last transitions and of the last sum left out.
    """

    stored: StoredContract
    conditions: tuple[Condition, ...]
    digest: str

    @property
    def key(self) -> str:
        """namespace/name."""
        return self.stored.object_key


def contract_record(document: Mapping[str, Any]) -> ContractRecord:
    """A contract as it is stored; one that cannot be read is kept with its problems."""
    status = document.get("status") or {}
    return ContractRecord(
        stored=stored_from_resource(document),
        conditions=read_conditions(status),
        digest=status_digest(status),
    )


def status_digest(status: Mapping[str, Any]) -> str:
    """What a status says, apart from when it was said."""
    timeless = dict(status)
    timeless["conditions"] = [
        {name: value for name, value in condition.items() if name != "lastTransitionTime"}
        for condition in sorted(status.get("conditions") or (), key=lambda c: str(c.get("type")))
    ]
    attainment = status.get("attainment")
    if isinstance(attainment, Mapping):
        timeless["attainment"] = {k: v for k, v in attainment.items() if k != "updatedAt"}
    text = json.dumps(timeless, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
