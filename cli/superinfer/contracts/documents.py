"""Reads contract documents from files, directories and stdin, and checks them alone and together.

A document that cannot be read is a problem of that document; it never hides the problems of the others.
Documents of other kinds (a pool, a Secret) are not judged, only counted.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from superinfer_core.api.v1alpha1.slocontract import SLOContract
from superinfer_core.contract.conflicts import PoolFacts, Unloaded
from superinfer_core.contract.document import MAX_DOCUMENT_BYTES, load_documents
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import parse_contract
from superinfer_core.contract.problems import ContractInvalid, FieldProblem
from superinfer_core.contract.resolution import Resolution, resolve_contracts
from superinfer_core.prediction.profile import Profile
from superinfer_ingress.contracts.kinds import of_another_kind

STDIN: Final = "-"
SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
DEFAULT_POOL: Final = "default"
SHORTEST_PROMPT_TOKENS: Final = 16
_SEPARATOR: Final = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_LIST_KINDS: Final = frozenset({"List", "SLOContractList"})


class CannotRead(Exception):
    """A file is not there or cannot be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file: the contracts in it, and what is wrong with the rest.

    Attributes:
        names: (namespace or "", name) of documents that are no contracts as they stand, as far as they say.
        others: documents of other kinds.
    """

    name: str
    contracts: tuple[SLOContract, ...]
    problems: tuple[FieldProblem, ...]
    names: tuple[tuple[str, str], ...] = ()
    others: int = 0


def read_sources(names: Sequence[str]) -> list[Source]:
    """Every document of the named files; a directory means its YAML and JSON, `-` or nothing means stdin.

    Raises:
        CannotRead: a name does not exist, or nothing is left to read.
    """
    sources = [_source(name, text) for name, text in _texts(names or (STDIN,))]
    if not sources:
        raise CannotRead(f"no contract files (*.yaml, *.yml, *.json) in {', '.join(names)}")
    if not any(source.contracts or source.problems for source in sources):
        nothing = FieldProblem("document", "", "holds no contract", "write one; `superinfer contract -h`")
        return [replace(source, problems=(nothing,)) for source in sources]
    return sources


def stored(sources: Iterable[Source], namespace: str) -> list[tuple[str, StoredContract]]:
    """(file, contract) of everything, what comes first counts as older.

    Broken documents are there by name: others are told that what they refer to is broken, not missing.
    """
    listed = list(sources)
    readable = [
        (source.name, StoredContract.of(contract, namespace=namespace))
        for source in listed
        for contract in source.contracts
    ]
    taken = {contract.object_key for _, contract in readable}
    broken = [
        (source.name, StoredContract(where or namespace, name, None, invalid=source.problems))
        for source in listed
        for where, name in source.names
    ]
    everything = [*readable, *(pair for pair in broken if pair[1].object_key not in taken)]
    return [
        (file, contract if contract.uid else replace(contract, uid=f"{number:09d}"))
        for number, (file, contract) in enumerate(everything)
    ]


def resolve(contracts: Iterable[StoredContract], profile: Profile | None) -> Resolution:
    """All of them together; with a profile, targets no idle engine can meet are problems too."""
    documents = list(contracts)
    if profile is None:
        return resolve_contracts(documents)
    return resolve_contracts(documents, [_pool(key, documents, profile) for key in _pool_keys(documents)])


def problem_fields(problem: FieldProblem) -> dict[str, str]:
    """A field's problem as JSON."""
    return {
        "kind": "InvalidSpec",
        "field": problem.field,
        "value": problem.value,
        "message": problem.message,
        "fix": problem.fix,
    }


def file_beside(file: str, namespace: str, name: str) -> Path | None:
    """The file in the same directory that holds the contract `name`, if there is one."""
    if file in (STDIN, "stdin"):
        return None
    try:
        sources = [source for source in read_sources([str(Path(file).parent)]) if source.name != file]
    except (CannotRead, OSError):
        return None
    for found, contract in stored(sources, namespace):
        if contract.namespace == namespace and name in (contract.name, contract.service_id):
            return Path(found)
    return None


def _texts(names: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for name in names:
        if name == STDIN:
            # One byte more than is allowed, so that too much is seen as such and no more is read.
            yield "stdin", sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
            continue
        if not name:
            raise CannotRead("an empty name; give a file, a directory, or - for stdin")
        path = Path(name)
        try:
            paths = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES) if path.is_dir() else [path]
            for file in paths:
                with file.open("rb") as opened:
                    yield str(file), opened.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as error:
            raise CannotRead(f"{error.filename or name}: {error.strerror or error}") from None


def _source(name: str, text: bytes) -> Source:
    contracts: list[SLOContract] = []
    problems: list[FieldProblem] = []
    names: list[tuple[str, str]] = []
    others = 0
    documents = list(_documents(text))
    for number, document in enumerate(documents, start=1):
        where = f"document {number}: " if len(documents) > 1 else ""
        if isinstance(document, Mapping) and of_another_kind(document):
            others += 1
            continue
        try:
            if isinstance(document, ContractInvalid):
                raise document
            contracts.append(parse_contract(document))
        except ContractInvalid as invalid:
            problems += [FieldProblem(where + p.field, p.value, p.message, p.fix) for p in invalid.problems]
            names += _name_of(document)
    if not documents:
        problems = [FieldProblem("document", "", "holds no contract", "write one; `superinfer contract -h`")]
    return Source(name, tuple(contracts), tuple(problems), tuple(names), others)


def _documents(text: bytes) -> Iterator[Mapping[str, Any] | ContractInvalid]:
    """Every document of a text, those of a list one by one, and in place of one that cannot be read why."""
    try:
        documents = load_documents(text)
    except ContractInvalid as invalid:
        parts = list(_parts(text))
        if len(parts) < 2 or len(text) > MAX_DOCUMENT_BYTES:
            yield invalid
        else:
            for part in parts:
                yield from _documents(part)
        return
    for document in documents:
        kind, items = document.get("kind"), document.get("items")
        if isinstance(kind, str) and kind in _LIST_KINDS and isinstance(items, list):
            yield from (item for item in items if isinstance(item, Mapping))
        else:
            yield document


def _parts(text: bytes) -> Iterator[bytes]:
    """The text cut at its `---` lines; blank lines in front keep the line numbers of messages true."""
    cuts = [0, *(match.start() for match in _SEPARATOR.finditer(text) if match.start()), len(text)]
    for start, end in pairwise(cuts):
        if text[start:end].strip():
            yield b"\n" * text.count(b"\n", 0, start) + text[start:end]


def _name_of(document: Mapping[str, Any] | ContractInvalid) -> list[tuple[str, str]]:
    if isinstance(document, ContractInvalid):
        return []
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name, namespace = metadata.get("name") or document.get("service_id"), metadata.get("namespace") or ""
    return [(namespace, name)] if isinstance(name, str) and isinstance(namespace, str) else []


def _pool_keys(contracts: Iterable[StoredContract]) -> list[str]:
    keys = {f"{DEFAULT_POOL}/{DEFAULT_POOL}"}
    for contract in contracts:
        reference = contract.spec.pool_ref if contract.spec is not None else None
        if reference is not None:
            keys.add(f"{reference.namespace or contract.namespace}/{reference.name}")
    return sorted(keys)


def _pool(key: str, contracts: Iterable[StoredContract], profile: Profile) -> PoolFacts:
    namespace, _, name = key.partition("/")
    steps, factor = profile.steps, profile.factor(0.99)
    itl_ms = steps.step_ms(decode_seqs=1) * factor
    ttft_ms = steps.prefill_ms(SHORTEST_PROMPT_TOKENS, chunk_tokens=profile.max_step_tokens) * factor
    return PoolFacts(
        namespace=namespace,
        name=name,
        allowed_namespaces=frozenset(contract.namespace for contract in contracts),
        unloaded=Unloaded(ttft_ms=ttft_ms, itl_ms=itl_ms, e2e_ms=ttft_ms),
    )
