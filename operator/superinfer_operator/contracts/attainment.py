"""The window counts every ingress replica publishes, gathered by contract. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

COUNTS_ITEM: Final = "counts.json"


@dataclass(frozen=True, slots=True)
class CountsRecord:
    """What one replica counted, by namespace/serviceID; empty where it is not such a ConfigMap."""

    contracts: Mapping[str, Mapping[str, Any]]


def counts_record(document: Mapping[str, Any]) -> CountsRecord:
    """A ConfigMap's counts.

    Raises:
        ValueError: it holds counts that cannot be read.
    """
    text = (document.get("data") or {}).get(COUNTS_ITEM)
    if text is None:
        return CountsRecord({})
    contracts = json.loads(text)["contracts"]
    if not isinstance(contracts, dict):
        msg = f"{COUNTS_ITEM}: contracts is not a mapping"
        raise ValueError(msg)
    return CountsRecord({key: counts for key, counts in contracts.items() if isinstance(counts, dict)})


def by_contract(records: Iterable[CountsRecord]) -> dict[str, list[Mapping[str, Any]]]:
    """The counts of all replicas, by contract."""
    gathered: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        for key, counts in record.contracts.items():
            gathered.setdefault(key, []).append(counts)
    return gathered
