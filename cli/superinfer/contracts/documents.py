"""Reads contract documents from files, directories and stdin, and checks them alone and together.

A file that is not a contract is a problem of that file; it never hides the problems of the others.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from superinfer_core.api.v1alpha1.slocontract import SLOContract
from superinfer_core.contract.conflicts import PoolFacts, Unloaded
from superinfer_core.contract.document import MAX_DOCUMENT_BYTES
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import parse_contracts_text
from superinfer_core.contract.problems import ContractInvalid, FieldProblem
from superinfer_core.contract.resolution import Resolution, resolve_contracts
from superinfer_core.prediction.profile import Profile

STDIN: Final = "-"
SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
DEFAULT_POOL: Final = "default"
SHORTEST_PROMPT_TOKENS: Final = 16


class CannotRead(Exception):
    """A file is not there or cannot be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file: the contracts in it, or why there are none."""

    name: str
    contracts: tuple[SLOContract, ...]
    problems: tuple[FieldProblem, ...]


def read_sources(names: Sequence[str]) -> list[Source]:
    """Every document of the named files; a directory means its YAML and JSON, `-` or nothing means stdin.

    Raises:
        CannotRead: a name does not exist, or nothing is left to read.
    """
    sources = [_source(name, text) for name, text in _texts(names or (STDIN,))]
    if not sources:
        raise CannotRead(f"no contract files (*.yaml, *.yml, *.json) in {', '.join(names)}")
    return sources


def stored(sources: Iterable[Source], namespace: str) -> list[tuple[str, StoredContract]]:
    """(file, contract) of everything readable; what comes first counts as older."""
    pairs = [(source.name, contract) for source in sources for contract in source.contracts]
    return [
        (name, StoredContract.of(contract, namespace=namespace, uid=f"{number:09d}"))
        for number, (name, contract) in enumerate(pairs)
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


def long_document(contract: SLOContract) -> dict[str, Any]:
    """The contract in the long form, without what nobody stated."""
    document = contract.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
    order = ("apiVersion", "kind", "metadata", "spec")
    return {key: document[key] for key in order if key in document}


def _texts(names: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for name in names:
        if name == STDIN:
            # One byte more than is allowed, so that too much is seen as such and no more is read.
            yield "stdin", sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
            continue
        path = Path(name)
        paths = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES) if path.is_dir() else [path]
        for file in paths:
            try:
                with file.open("rb") as opened:
                    yield str(file), opened.read(MAX_DOCUMENT_BYTES + 1)
            except OSError as error:
                raise CannotRead(f"{file}: {error.strerror or error}") from None


def _source(name: str, text: bytes) -> Source:
    try:
        contracts = parse_contracts_text(text)
    except ContractInvalid as invalid:
        return Source(name, (), invalid.problems)
    if not contracts:
        nothing = FieldProblem("document", "", "holds no contract", "write one; `superinfer contract -h`")
        return Source(name, (), (nothing,))
    return Source(name, contracts, ())


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
