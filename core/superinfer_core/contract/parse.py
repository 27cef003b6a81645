"""A document from a user into an SLOContract: the long form, or the short YAML of the first users.

Promises: `parse_contract` and `parse_pool` return their object or raise `ContractInvalid` listing every
problem with its field, the value found (cut to 80 characters) and the fix; nothing else is ever raised.
Unknown fields are errors here, with the closest known field as suggestion, although the models themselves
read leniently: a typing mistake in a promise must not become no promise. Pure; safe from any thread.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from superinfer_core.api.v1alpha1.chipletpool import CHIPLETPOOL_KIND, ChipletPool
from superinfer_core.api.v1alpha1.meta import API_VERSION, ApiModel, ObjectMeta
from superinfer_core.api.v1alpha1.slocontract import SLOCONTRACT_KIND, SLOContract
from superinfer_core.contract.document import plain_mapping
from superinfer_core.contract.field_errors import problems_of
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.known_fields import unknown_fields
from superinfer_core.contract.problems import ContractInvalid, FieldProblem
from superinfer_core.contract.short_form import is_short, long_from_short
from superinfer_core.contract.spec_checks import contract_problems
from superinfer_core.words import shown

_IDENTITY: Final = tuple(
    info.alias or name
    for name, info in ObjectMeta.model_fields.items()
    if name not in ("labels", "annotations")
)
_Model = TypeVar("_Model", bound=ApiModel)


def parse_contract(document: Mapping[str, Any]) -> SLOContract:
    """A contract from a document of either form.

    Raises:
        ContractInvalid: with everything that is wrong.
    """
    plain = plain_mapping(document)
    if is_short(plain):
        plain = long_from_short(plain)
    contract, problems = _strictly(plain, SLOContract, SLOCONTRACT_KIND)
    if contract is not None:
        problems += contract_problems(contract)
    if contract is None or problems:
        raise ContractInvalid(tuple(problems))
    return contract


def parse_pool(document: Mapping[str, Any]) -> ChipletPool:
    """A pool from a document.

    Raises:
        ContractInvalid: with everything that is wrong.
    """
    pool, problems = _strictly(plain_mapping(document), ChipletPool, CHIPLETPOOL_KIND)
    if pool is None or problems:
        raise ContractInvalid(tuple(problems))
    return pool


def read_contract(resource: Mapping[str, Any]) -> SLOContract:
    """A contract as the API server has it: unknown fields are ignored, everything else is checked.

    Raises:
        ContractInvalid: with everything that is wrong.
    """
    # managedFields and status can be larger than any contract, and are not the user's; labels and annotations
    # are other tools' too, and the API server, which has looked at them, takes more than people write.
    parts = {key: resource[key] for key in ("apiVersion", "kind", "spec") if key in resource}
    metadata = resource.get("metadata")
    if isinstance(metadata, Mapping):
        parts["metadata"] = {key: metadata[key] for key in _IDENTITY if key in metadata}
    try:
        contract = SLOContract.model_validate(plain_mapping(parts), by_alias=True, by_name=False)
    except ValidationError as error:
        raise ContractInvalid(problems_of(error)) from None
    if problems := contract_problems(contract):
        raise ContractInvalid(tuple(problems))
    return contract


def stored_from_resource(resource: Mapping[str, Any]) -> StoredContract:
    """A custom resource as resolution takes it; what cannot be read is kept with its problems."""
    try:
        return StoredContract.of(read_contract(resource))
    except ContractInvalid as invalid:
        metadata = resource.get("metadata")
        meta = metadata if isinstance(metadata, Mapping) else {}
        generation = meta.get("generation")
        return StoredContract(
            namespace=str(meta.get("namespace") or "default"),
            name=str(meta.get("name") or ""),
            spec=None,
            created=str(meta.get("creationTimestamp") or ""),
            uid=str(meta.get("uid") or ""),
            generation=generation if isinstance(generation, int) else 0,
            invalid=invalid.problems,
        )


def document_of(contract: SLOContract) -> dict[str, Any]:
    """The contract in the long form, without status and what nobody stated: what to write to a file."""
    document = contract.model_dump(mode="json", exclude_none=True, exclude={"status"})
    return {part: document[part] for part in ("apiVersion", "kind", "metadata", "spec") if part in document}


def _strictly(
    plain: dict[str, Any], model: type[_Model], kind: str
) -> tuple[_Model | None, list[FieldProblem]]:
    # What the operator wrote is not the user's to get right: `kubectl get -o yaml` output is a fine document.
    stated = {name: value for name, value in plain.items() if name != "status"}
    problems = [*_type_problems(stated, kind), *unknown_fields(stated, model)]
    typed = {name: value for name, value in stated.items() if name not in ("apiVersion", "kind")}
    try:
        return model.model_validate(typed, by_alias=True, by_name=False), problems
    except ValidationError as error:
        return None, [*problems, *problems_of(error)]


def _type_problems(plain: Mapping[str, Any], kind: str) -> list[FieldProblem]:
    problems = []
    for field, expected in (("apiVersion", API_VERSION), ("kind", kind)):
        found = plain.get(field)
        if field not in plain:
            problems.append(FieldProblem(field, "", "is missing", f"add {field}: {expected}"))
        elif found != expected:
            problems.append(
                FieldProblem(field, shown(found), f"is not {expected}", f"write {field}: {expected}")
            )
    return problems
