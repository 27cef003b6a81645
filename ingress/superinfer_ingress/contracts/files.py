"""A directory of contract files into stored contracts: several documents per file, each judged alone.

Promises: a document that cannot be read takes nothing from the others; a file that an editor left broken for
a moment keeps the contracts it had; reading again costs only the files that changed. Writing is atomic: a
reader sees the old file or the new one.
`ContractFiles` blocks; `DirectorySource` calls it off the event loop.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from superinfer_core.contract.document import MAX_DOCUMENT_BYTES, load_documents
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import parse_contract
from superinfer_core.contract.problems import ContractInvalid, FieldProblem
from superinfer_ingress.contracts.kinds import of_another_kind
from superinfer_ingress.contracts.source import MANAGED_SUFFIX, FiledContract, NotWritten, SourceProblem

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class _ReadFile:
    stamp: tuple[int, int, int]
    contracts: tuple[FiledContract, ...]
    problems: tuple[SourceProblem, ...]


class ContractFiles:
    """The contracts of one directory, as of the last `read`."""

    def __init__(self, directory: Path, *, default_namespace: str) -> None:
        self._directory = directory
        self._namespace = default_namespace
        self._files: dict[str, _ReadFile] = {}

    def read(self) -> tuple[Sequence[FiledContract], Sequence[SourceProblem]]:
        """Every contract and every problem, reading only what changed."""
        present: dict[str, _ReadFile] = {}
        try:
            paths = sorted(p for p in self._directory.iterdir() if p.suffix in _SUFFIXES)
        except OSError as error:
            return self._all(), (SourceProblem(str(self._directory), f"cannot be listed: {error.strerror}"),)
        for path in paths:
            if path.name.startswith("."):
                continue
            before = self._files.get(path.name)
            try:
                status = path.stat()
                if not stat.S_ISREG(status.st_mode):
                    present[path.name] = _unreadable(path, before, "is not a regular file")
                    continue
                stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
                if before is not None and before.stamp == stamp:
                    present[path.name] = before
                    continue
                present[path.name] = self._read_file(path, stamp, before)
            except FileNotFoundError:
                continue  # deleted between the listing and now
            except OSError as error:
                present[path.name] = _unreadable(path, before, f"cannot be read: {error.strerror}")
        self._files = present
        return self._all(), [problem for file in present.values() for problem in file.problems]

    def write(self, namespace: str, name: str, document: Mapping[str, Any]) -> None:
        """Put one contract into a file of its own, atomically."""
        path = self._managed_path(namespace, name)
        fresh = path.with_name(f".{path.name}.new")
        text = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
        with fresh.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)

    def delete(self, namespace: str, name: str) -> None:
        """Remove a contract this API wrote; one that is gone already is fine."""
        self._managed_path(namespace, name).unlink(missing_ok=True)

    def _managed_path(self, namespace: str, name: str) -> Path:
        # DNS names: no separator, no leading dot. Cut where a file system would.
        stem = f"{namespace}.{name}"
        if len(stem) > 150:
            stem = f"{stem[:120]}-{hashlib.sha256(stem.encode()).hexdigest()[:16]}"
        return self._directory / f"{stem}{MANAGED_SUFFIX}"

    def _all(self) -> Sequence[FiledContract]:
        return [contract for file in self._files.values() for contract in file.contracts]

    def _read_file(self, path: Path, stamp: tuple[int, int, int], before: _ReadFile | None) -> _ReadFile:
        earlier = before.contracts if before is not None else ()
        created = datetime.fromtimestamp(stamp[0] / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            documents = load_documents(_bytes_of(path))
        except ContractInvalid as invalid:
            return _ReadFile(stamp, earlier, (SourceProblem(path.name, str(invalid)),))
        contracts: list[FiledContract] = []
        problems: list[SourceProblem] = []
        for number, document in enumerate(documents, start=1):
            where = f"{path.name} document {number}" if len(documents) > 1 else path.name
            if of_another_kind(document):
                continue  # a pool or anything else that lives beside contracts is not ours to judge
            try:
                stored = StoredContract.of(
                    parse_contract(document), namespace=self._namespace, created=created
                )
            except ContractInvalid as invalid:
                broken = self._broken(path.name, document, earlier, invalid.problems, created)
                if broken is None:
                    problems.append(SourceProblem(where, str(invalid)))
                else:
                    problems.append(SourceProblem(where, f"{broken.stored.object_key}: {invalid}"))
                    contracts.append(broken)
                continue
            contracts.append(FiledContract(_as_old_as(stored, earlier), path.name, document))
        return _ReadFile(stamp, tuple(contracts), tuple(problems))

    def _broken(
        self,
        file: str,
        document: Mapping[str, Any],
        earlier: Sequence[FiledContract],
        invalid: tuple[FieldProblem, ...],
        created: str,
    ) -> FiledContract | None:
        """What stands in for a document that became invalid: what it was, else its name with the problems."""
        metadata = document.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        name = metadata.get("name") or document.get("service_id")
        namespace = metadata.get("namespace") or self._namespace
        if not isinstance(name, str) or not isinstance(namespace, str):
            return None
        for contract in earlier:
            if (contract.stored.namespace, contract.stored.name) == (namespace, name):
                return contract
        stored = StoredContract(namespace, name, None, created=created, invalid=invalid)
        return FiledContract(stored, file, {})


class DirectorySource:
    """The contracts of a directory, for the store."""

    def __init__(self, directory: Path, *, default_namespace: str) -> None:
        self._files = ContractFiles(directory, default_namespace=default_namespace)

    async def read(self) -> tuple[Sequence[FiledContract], Sequence[SourceProblem]]:
        """Every contract and every problem."""
        return await asyncio.to_thread(self._files.read)

    async def write(self, filed: FiledContract) -> None:
        """Put one contract into a file of its own.

        Raises:
            NotWritten: the directory cannot be written.
        """
        stored = filed.stored
        try:
            await asyncio.to_thread(self._files.write, stored.namespace, stored.name, filed.document)
        except OSError as error:
            raise _not_writable(error) from error

    async def delete(self, filed: FiledContract) -> None:
        """Remove one contract's file.

        Raises:
            NotWritten: the directory cannot be written.
        """
        try:
            await asyncio.to_thread(self._files.delete, filed.stored.namespace, filed.stored.name)
        except OSError as error:
            raise _not_writable(error) from error


def _not_writable(error: OSError) -> NotWritten:
    message = f"the contracts directory cannot be written ({error.strerror}); nothing was changed"
    return NotWritten(message, status=503)


def _as_old_as(stored: StoredContract, earlier: Sequence[FiledContract]) -> StoredContract:
    """Editing a file must not make its contracts younger than those they stood before."""
    for contract in earlier:
        if contract.stored.object_key == stored.object_key and contract.stored.spec is not None:
            return replace(stored, created=contract.stored.created, uid=contract.stored.uid)
    return stored


def _unreadable(path: Path, before: _ReadFile | None, why: str) -> _ReadFile:
    """What was there before stays; read again next time."""
    kept = before.contracts if before is not None else ()
    return _ReadFile((0, 0, 0), kept, (SourceProblem(path.name, why),))


def _bytes_of(path: Path) -> bytes:
    """At most one byte more than a contract file may have.

    Not blocking: what became a pipe since it was looked at would hold up every later change of the directory.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(MAX_DOCUMENT_BYTES + 1)
