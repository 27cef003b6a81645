"""`superinfer contract`: check, convert and explain contracts before anybody relies on them."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.table import Table

from superinfer import exit_codes
from superinfer.contracts.documents import (
    CannotRead,
    Source,
    file_beside,
    problem_fields,
    read_sources,
    resolve,
    stored,
)
from superinfer.output import Output, OutputOption, console, emit_json, errors, fail
from superinfer_core.contract.explain import Explanation, explain
from superinfer_core.contract.inheritance import StoredContract
from superinfer_core.contract.parse import document_of
from superinfer_core.contract.problems import ContractInvalid, ContractProblem, ProblemKind
from superinfer_core.contract.resolution import Resolution
from superinfer_core.contract.short_form import short_from_contract
from superinfer_core.prediction.profile import Profile, ProfileInvalid
from superinfer_ingress.small_file import read_small_text

app = typer.Typer(
    help="Check, convert and explain SLO contracts.", no_args_is_help=True, rich_markup_mode=None
)

Files = Annotated[
    list[str] | None,
    typer.Argument(help="Files or directories; - or nothing reads stdin.", metavar="FILE..."),
]
Namespace = Annotated[str, typer.Option(help="Namespace of contracts that name none.")]


class Form(StrEnum):
    """The two ways to write a contract."""

    LONG = "long"
    SHORT = "short"


CHECK_HELP = """Say everything that is wrong with contracts: each alone, and all of them together.

Every problem names the field, the value found and the fix; conflicts name both sides. Of two contracts with
one id the one given first keeps it. With --profile, targets no idle engine of that kind can meet are found.
Documents of other kinds (pools, Secrets) are skipped and counted.

\b
Examples:
  superinfer contract check contracts/
  superinfer contract check --profile smollm2.json gold.yaml
  kubectl get slocontracts -o yaml | superinfer contract check -o json

\b
Exit codes:
  0  all are good
  1  at least one problem
  2  a file cannot be read"""


@app.command("check", help=CHECK_HELP, short_help="Say everything that is wrong with contracts.")
def check(
    files: Files = None,
    namespace: Namespace = "default",
    profile: Annotated[Path | None, typer.Option(help="Profile to check targets against.")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """See CHECK_HELP."""
    sources = _sources(files)
    documents = stored(sources, namespace)
    resolution = resolve([contract for _, contract in documents], _profile(profile))
    reports = [*_unreadable(sources), *_together(documents, resolution)]
    good = not any(report["problems"] for report in reports)
    others = sum(source.others for source in sources)
    if output is Output.JSON:
        emit_json({"ok": good, "contracts": reports, "skipped": others})
    else:
        for report in reports:
            _print_report(report)
        if others:
            console.print(_skipped(others), markup=False)
    raise typer.Exit(exit_codes.OK if good else exit_codes.FAILED)


CONVERT_HELP = """Write a contract in the other form: short (the first users' YAML) or long.

What does not fit the short form is named, never dropped.

\b
Examples:
  superinfer contract convert checkout.yaml > long.yaml
  superinfer contract convert --to short long.yaml

\b
Exit codes:
  0  converted
  1  not a contract, or it does not fit the other form
  2  a file cannot be read"""


@app.command("convert", help=CONVERT_HELP, short_help="Write a contract in the other form.")
def convert(
    files: Files = None,
    to: Annotated[Form, typer.Option(help="The form to write.")] = Form.LONG,
    output: OutputOption = Output.TEXT,
) -> None:
    """See CONVERT_HELP."""
    sources = _sources(files)
    invalid = [problem for source in sources for problem in source.problems]
    documents: list[dict[str, Any]] = []
    for contract in (contract for source in sources for contract in source.contracts):
        try:
            documents.append(short_from_contract(contract) if to is Form.SHORT else document_of(contract))
        except ContractInvalid as misfit:
            invalid += misfit.problems
    if invalid:
        for problem in invalid:
            errors.print(problem.describe(), markup=False)
        raise typer.Exit(exit_codes.FAILED)
    if others := sum(source.others for source in sources):
        errors.print(_skipped(others), markup=False)
    if output is Output.JSON:
        emit_json(documents[0] if len(documents) == 1 else documents)
    else:
        typer.echo(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True), nl=False)


EXPLAIN_HELP = """Show what a contract is after inheritance: every field, and which contract states it.

\b
Examples:
  superinfer contract explain checkout-chat contracts/
  superinfer contract explain shop/checkout-chat contracts/ -o json

\b
Exit codes:
  0  it is in effect
  1  it is not in effect; the problems are shown
  2  there is no such contract, or a file cannot be read"""


@app.command("explain", help=EXPLAIN_HELP, short_help="Show a contract after inheritance.")
def explain_command(
    contract: Annotated[str, typer.Argument(help="serviceID, or namespace/serviceID.")],
    files: Files = None,
    namespace: Namespace = "default",
    profile: Annotated[Path | None, typer.Option(help="Profile to check targets against.")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """See EXPLAIN_HELP."""
    sources = _sources(files)
    documents = [document for _, document in stored(sources, namespace)]
    explanation = explain(resolve(documents, _profile(profile)), _key_of(contract, documents, namespace))
    for source in sources:
        for problem in source.problems:
            errors.print(f"{source.name}: {problem.describe()}", markup=False)
    if explanation is None:
        known = ", ".join(sorted({document.service_key for document in documents})) or "none"
        fail(f"there is no contract {contract!r}", fix=f"Those there are: {known}", code=exit_codes.USAGE)
    if output is Output.JSON:
        emit_json(_explanation_json(explanation))
    else:
        _print_explanation(explanation)
    raise typer.Exit(exit_codes.OK if explanation.in_effect else exit_codes.FAILED)


def _skipped(others: int) -> str:
    return f"{others} document{'' if others == 1 else 's'} of other kinds skipped"


def _sources(files: list[str] | None) -> list[Source]:
    try:
        return read_sources(files or [])
    except CannotRead as problem:
        fail(str(problem), code=exit_codes.USAGE)


def _profile(path: Path | None) -> Profile | None:
    if path is None:
        return None
    try:
        return Profile.load_json(read_small_text(path))
    except (OSError, UnicodeDecodeError, ProfileInvalid) as problem:
        fail(
            f"{path}: {problem}", fix="Make one with `superinfer profile --out FILE`.", code=exit_codes.USAGE
        )


def _key_of(asked: str, documents: list[StoredContract], namespace: str) -> str:
    if "/" in asked:
        return asked
    namespaces = [d.namespace for d in documents if asked in (d.service_id, d.name)]
    return f"{namespaces[0] if len(set(namespaces)) == 1 else namespace}/{asked}"


def _unreadable(sources: list[Source]) -> list[dict[str, Any]]:
    return [
        {
            "file": source.name,
            "contract": None,
            "in_effect": False,
            "problems": [problem_fields(problem) for problem in source.problems],
        }
        for source in sources
        if source.problems
    ]


def _together(documents: list[tuple[str, StoredContract]], resolution: Resolution) -> list[dict[str, Any]]:
    """What is wrong between contracts; the broken ones are reported by their files."""
    files = _files_by_key(documents)
    return [
        {
            "file": file,
            "contract": resolved.service_key,
            "in_effect": resolved.effective is not None,
            "problems": [_conflict_fields(_placed(problem, file, key)) for problem in resolved.problems],
        }
        for key, resolved in resolution.contracts.items()
        if (file := files.get(key)) is not None
    ]


def _placed(problem: ContractProblem, file: str, key: str) -> ContractProblem:
    """A fallback that is only missing among the files given: say where it is, or may be."""
    if problem.kind is not ProblemKind.FALLBACK_NOT_FOUND or "does not exist" not in problem.message:
        return problem
    beside = file_beside(file, key.partition("/")[0], problem.other)
    if beside is None:
        fix = f"{problem.suggestion}; if it is in another file, give that file or its directory too"
    else:
        fix = f"it is in {beside}; check them together: superinfer contract check {beside.parent}"
    return replace(problem, suggestion=fix)


def _files_by_key(documents: list[tuple[str, StoredContract]]) -> dict[str, str]:
    """Object keys of readable contracts as resolution numbers them: a name used again gets (2), (3), ..."""
    files: dict[str, str] = {}
    for file, contract in documents:
        if contract.spec is None:
            continue  # read after all others, and never of a name that is taken
        key, again = contract.object_key, 1
        while key in files:
            again += 1
            key = f"{contract.object_key} ({again})"
        files[key] = file
    return files


def _conflict_fields(problem: ContractProblem) -> dict[str, str]:
    return {
        "kind": problem.kind.value,
        "field": problem.field,
        "other": problem.other,
        "message": problem.message,
        "fix": problem.suggestion,
    }


def _print_report(report: dict[str, Any]) -> None:
    name = report["contract"] or report["file"]
    if not report["problems"]:
        console.print(f"[green]ok[/green]  {name}  [dim]{report['file']}[/dim]")
        return
    effect = "in effect all the same" if report["in_effect"] else "not in effect"
    console.print(f"[red]bad[/red] {name}  [dim]{report['file']}[/dim]  ({effect})")
    for problem in report["problems"]:
        value = f" (got {problem['value']})" if problem.get("value") else ""
        where = f"{problem['field']}: " if problem["field"] else ""
        console.print(f"    {problem['kind']}: {where}{problem['message']}{value}", markup=False)
        console.print(f"      fix: {problem['fix']}", markup=False)


def _print_explanation(explanation: Explanation) -> None:
    state = "in effect" if explanation.in_effect else "not in effect"
    console.print(f"{explanation.service_key}: {state}", markup=False)
    if len(explanation.lineage) > 1:
        console.print(f"inherits: {' <- '.join(explanation.lineage)}", markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading in ("field", "value", "stated by"):
        table.add_column(heading)
    for row in explanation.fields:
        table.add_row(row.field.replace("[", r"\["), row.value, row.origin)
    console.print(table)
    for deadline in explanation.deadlines:
        console.print(f"each request: {deadline}", markup=False)
    for problem in explanation.problems:
        console.print(problem.describe(), markup=False, style="red")


def _explanation_json(explanation: Explanation) -> dict[str, Any]:
    return {
        "contract": explanation.service_key,
        "in_effect": explanation.in_effect,
        "lineage": list(explanation.lineage),
        "fields": [
            {"field": row.field, "value": row.value, "origin": row.origin} for row in explanation.fields
        ],
        "deadlines": list(explanation.deadlines),
        "problems": [_conflict_fields(problem) for problem in explanation.problems],
    }
