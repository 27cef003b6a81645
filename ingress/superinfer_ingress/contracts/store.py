"""The contracts in effect: from their source and the contracts API, resolved together, swapped as a whole.

Promises: readers see one consistent directory, the old or the new; a contract that cannot be read or
contradicts others changes nothing for the rest; what POST accepted is kept before it is answered.
Concurrency: owned by the event loop; one change at a time, resolved on a thread.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from superinfer_core.contract.conflicts import PoolFacts
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.problems import ContractProblem
from superinfer_core.contract.resolution import Resolution, resolve_contracts
from superinfer_ingress.contracts.selection import Directory
from superinfer_ingress.contracts.source import ContractSource, FiledContract, SourceProblem

_log = logging.getLogger("superinfer.ingress.contracts")

_EMPTY: Final = resolve_contracts(())


class ContractConflict(Exception):
    """A posted contract contradicts what stands; `problems` name both sides."""

    def __init__(self, problems: Sequence[ContractProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in problems))


class OwnedElsewhere(Exception):
    """Somebody else wrote the contract; the API leaves it alone and says whom to ask."""

    def __init__(self, filed: FiledContract) -> None:
        super().__init__(f"{filed.stored.service_key} {filed.owned_by}")


class ContractStore:
    """Every contract this ingress knows."""

    def __init__(
        self,
        source: ContractSource,
        *,
        changed: Callable[[Resolution], None],
        pools: Callable[[], Iterable[PoolFacts] | None],
    ) -> None:
        self._source = source
        self._changed = changed
        self._pools = pools
        self._filed: dict[str, FiledContract] = {}
        self._lock = asyncio.Lock()
        self.resolution = _EMPTY
        self.directory = Directory.of(())
        self.problems: Sequence[SourceProblem] = ()

    def filed(self, object_key: str) -> FiledContract | None:
        """A stored contract by "namespace/name"."""
        return self._filed.get(object_key)

    def find(self, service_key: str) -> FiledContract | None:
        """A stored contract by "namespace/serviceID", in effect or not; by its object name failing that."""
        for contract in self._filed.values():
            if contract.stored.service_key == service_key:
                return contract
        return self._filed.get(service_key)

    def all(self) -> Sequence[FiledContract]:
        """Every stored contract, sorted by "namespace/name"."""
        return [self._filed[key] for key in sorted(self._filed)]

    async def reload(self) -> None:
        """Read everything again and put what changed into effect."""
        async with self._lock:
            await self._take(*await self._source.read())

    async def put(self, stored: StoredContract, document: Mapping[str, Any]) -> tuple[FiledContract, bool]:
        """Add or replace one contract; True if it is new.

        Raises:
            ContractConflict: it would not be accepted beside what stands.
            OwnedElsewhere: a contract of that name belongs to somebody else.
            NotWritten: it could not be kept.
        """
        async with self._lock:
            before = self._filed.get(stored.object_key)
            if before is not None and not before.managed:
                raise OwnedElsewhere(before)
            filed = _stamped(stored, document, before)
            await asyncio.to_thread(self._check, filed)
            await self._source.write(filed)
            await self._take(*await self._source.read())
            return self._filed.get(stored.object_key, filed), before is None

    async def delete(self, filed: FiledContract) -> None:
        """Remove one contract.

        Raises:
            OwnedElsewhere: it belongs to somebody else.
            NotWritten: it is still there.
        """
        if not filed.managed:
            raise OwnedElsewhere(filed)
        async with self._lock:
            await self._source.delete(filed)
            await self._take(*await self._source.read())

    def _others(self, filed: FiledContract) -> list[FiledContract]:
        return [c for key, c in self._filed.items() if key != filed.stored.object_key]

    def _check(self, filed: FiledContract) -> None:
        """Refuse a newcomer that would not be accepted, or that others would break on."""
        stored = [contract.stored for contract in [*self._others(filed), filed]]
        resolution = resolve_contracts(stored, self._known_pools())
        problems = list(resolution.problems.get(filed.stored.object_key, ()))
        for key, found in resolution.problems.items():
            if key != filed.stored.object_key and key not in self.resolution.problems:
                problems += found
        if problems:
            raise ContractConflict(problems)

    def _known_pools(self) -> list[PoolFacts] | None:
        pools = self._pools()
        return None if pools is None else list(pools)

    async def _take(self, filed: Sequence[FiledContract], problems: Sequence[SourceProblem]) -> None:
        """Put contracts into effect. Thousands take a second to resolve: streams go on meanwhile."""
        taken = await asyncio.to_thread(_resolved, filed, self._known_pools())
        known = {str(problem) for problem in self.problems}
        self._filed, self.resolution, self.directory = taken.filed, taken.resolution, taken.directory
        self.problems = (*problems, *taken.repeated)
        for problem in self.problems:
            if str(problem) not in known:
                _log.warning("%s: %s", problem.file, problem.message)
        self._changed(self.resolution)


@dataclass(frozen=True, slots=True)
class _Taken:
    """Everything that follows from the contracts there are."""

    filed: dict[str, FiledContract]
    repeated: tuple[SourceProblem, ...]
    resolution: Resolution
    directory: Directory


def _resolved(filed: Sequence[FiledContract], pools: Sequence[PoolFacts] | None) -> _Taken:
    by_name: dict[str, FiledContract] = {}
    repeated: list[SourceProblem] = []
    for contract in sorted(filed, key=lambda c: c.stored.age_key):
        key = contract.stored.object_key
        if key in by_name:
            message = f"{key} is in {by_name[key].file} already; the older one counts"
            repeated.append(SourceProblem(contract.file, message))
        else:
            by_name[key] = contract
    resolution = resolve_contracts((contract.stored for contract in by_name.values()), pools)
    # Where pools are known, a contract that may use none of them is not served by whatever there is.
    usable = {
        key: contract
        for key, contract in resolution.effective.items()
        if pools is None or contract.pool is not None
    }
    broken = {
        resolved.service_key: "; ".join(str(problem) for problem in resolved.problems)
        for resolved in resolution.contracts.values()
        if resolved.service_key not in usable
    }
    directory = Directory.of(list(usable.values()), broken)
    return _Taken(by_name, tuple(repeated), resolution, directory)


def _stamped(
    stored: StoredContract, document: Mapping[str, Any], before: FiledContract | None
) -> FiledContract:
    """The contract with the metadata a server gives: age, uid and generation survive a replacement."""
    old = before.stored if before is not None else None
    metadata = dict(document.get("metadata") or {})
    metadata["name"], metadata["namespace"] = stored.name, stored.namespace
    metadata["creationTimestamp"] = (old.created if old is not None else "") or _now()
    metadata["uid"] = (old.uid if old is not None else "") or str(uuid4())
    metadata["generation"] = (old.generation if old is not None else 0) + 1
    complete = {**document, "metadata": metadata}
    complete.pop("status", None)
    return FiledContract(
        StoredContract(
            namespace=stored.namespace,
            name=stored.name,
            spec=stored.spec,
            created=metadata["creationTimestamp"],
            uid=metadata["uid"],
            generation=metadata["generation"],
        ),
        "",
        complete,
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
