"""Facts about ChipletPools: the model, and what the operator itself wrote there before. Frozen."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from superinfer_core.api.v1alpha1 import labels
from superinfer_core.api.v1alpha1.chipletpool import ChipletPool
from superinfer_core.contract.field_errors import problems_of
from superinfer_core.contract.problems import FieldProblem


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """A ChipletPool as it is stored.

    Attributes:
        key: namespace/name.
        pool: None where it cannot be read; then `problems` says why.
        metadata: name, uid, generation and times, also of one that cannot be read.
        deleting: being deleted.
        finalizers: all of them.
        incarnations: highest incarnation ever used, by slot.
        status: as it is stored, for comparison.
    """

    key: str
    pool: ChipletPool | None
    metadata: Mapping[str, Any]
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    incarnations: Mapping[int, int] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[FieldProblem, ...] = ()

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Its name."""
        return self.key.partition("/")[2]

    @property
    def uid(self) -> str:
        """Its UID."""
        return str(self.metadata.get("uid") or "")

    @property
    def generation(self) -> int:
        """metadata.generation."""
        return int(self.metadata.get("generation") or 0)


_KEPT = ("name", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp")


def pool_record(document: Mapping[str, Any]) -> PoolRecord:
    """A pool as it is stored; one that cannot be read is kept with its problems."""
    metadata = document["metadata"]
    kept = {name: metadata[name] for name in _KEPT if name in metadata}
    problems: tuple[FieldProblem, ...] = ()
    pool = None
    try:
        pool = ChipletPool.model_validate(
            {"metadata": kept, "spec": document.get("spec")}, by_alias=True, by_name=False
        )
    except ValidationError as error:
        problems = problems_of(error)
    return PoolRecord(
        key=f"{metadata['namespace']}/{metadata['name']}",
        pool=pool,
        metadata=kept,
        deleting=bool(metadata.get("deletionTimestamp")),
        finalizers=tuple(metadata.get("finalizers") or ()),
        incarnations=_incarnations(metadata.get("annotations") or {}),
        status=document.get("status") or {},
        problems=problems,
    )


def _incarnations(annotations: Mapping[str, str]) -> dict[int, int]:
    try:
        found = json.loads(annotations.get(labels.INCARNATIONS_ANNOTATION) or "{}")
        return {int(slot): int(highest) for slot, highest in found.items()}
    except (ValueError, TypeError, AttributeError):
        # Edited by hand: existing pods still say which incarnations are taken.
        return {}
