"""`superinfer keys`: make API keys; only their hashes are kept."""

import re
from pathlib import Path
from typing import Annotated

import typer

from superinfer import exit_codes
from superinfer.output import Output, OutputOption, console, emit_json, fail
from superinfer_ingress.contracts.keys import (
    KeysInvalid,
    add_key,
    listed_keys,
    load_keys,
    new_key,
    remove_key,
)

app = typer.Typer(
    help="API keys for `superinfer serve --auth required`.", no_args_is_help=True, rich_markup_mode=None
)

CREATE_HELP = """Make an API key, show it once, and add its hash to a keys file.

A running `superinfer serve` reads the file again by itself. Which contracts a key serves is said by their
`access`: with --secret NAME those of its namespaces with apiKeySecretRef: {name: NAME}, and always those
with mode: AnyKey.

\b
Examples:
  superinfer keys create checkout --namespace shop --secret checkout-keys --keys keys.yaml
  superinfer keys create ops --namespace shop --namespace search --admin --keys keys.yaml

\b
Exit codes:
  0  created
  2  the file cannot be used, or has a key of that name"""

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
KeysFile = Annotated[Path, typer.Option("--keys", help="File of hashed keys; made when it is not there.")]


@app.command("create", help=CREATE_HELP, short_help="Make an API key, and show it once.")
def create(
    name: Annotated[str, typer.Argument(help="What the key is for; unique in the file.")],
    keys: KeysFile = Path("keys.yaml"),
    namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace whose contracts it may name; repeatable.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option(help="Secret a contract's apiKeySecretRef names, to bind the key to it.")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May change contracts.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """See CREATE_HELP."""
    namespaces = tuple(namespace or ("default",))
    for each in namespaces:
        if not _NAMESPACE.fullmatch(each):
            fail(
                f"--namespace {each!r} is not a namespace",
                fix="Use lower-case letters, digits and dashes, up to 63.",
                code=exit_codes.USAGE,
            )
    key, entry = new_key(name, namespaces=namespaces, secret=secret, admin=admin)
    try:
        add_key(keys, entry)
    except (KeysInvalid, OSError) as problem:
        fail(str(problem), code=exit_codes.USAGE)
    if output is Output.JSON:
        told = {"name": name, "key": key, "namespaces": list(namespaces), "secret": secret, "admin": admin}
        emit_json({**told, "file": str(keys)})
        return
    console.print(f"{key}\n", markup=False)
    console.print(
        f"Shown once; {keys} holds only its hash. It serves {_served(namespaces, secret)}.\n"
        f"Use it as `Authorization: Bearer {key[:8]}...`",
        markup=False,
    )


def _served(namespaces: tuple[str, ...], secret: str | None) -> str:
    """The contracts a key may name, as their `access` says it."""
    if secret is None:
        return "contracts with access: {mode: AnyKey}; --secret NAME makes one for those that name NAME"
    own = f"contracts of {', '.join(namespaces)} with access: {{apiKeySecretRef: {{name: {secret}}}}}"
    return f"{own}, and those with access: {{mode: AnyKey}}"


CHECK_HELP = """Say how many keys a file holds, and check it.

\b
Examples:
  superinfer keys check --keys keys.yaml

\b
Exit codes:
  0  the file is usable
  2  it is not; the message says where"""


@app.command("check", help=CHECK_HELP)
def check(keys: KeysFile = Path("keys.yaml"), output: OutputOption = Output.TEXT) -> None:
    """See CHECK_HELP."""
    try:
        ring = load_keys(keys)
    except KeysInvalid as problem:
        fail(str(problem), code=exit_codes.USAGE)
    if output is Output.JSON:
        emit_json({"file": str(keys), "keys": len(ring)})
    else:
        console.print(f"{keys}: {len(ring)} key{'' if len(ring) == 1 else 's'}", markup=False)


LIST_HELP = """Name the keys of a file and what each may do; never a key or its hash.

\b
Examples:
  superinfer keys list --keys keys.yaml
  superinfer keys list --keys keys.yaml -o json

\b
Exit codes:
  0  listed
  2  the file cannot be used; the message says where"""


@app.command("list", help=LIST_HELP, short_help="Name the keys of a file and what each may do.")
def list_command(keys: KeysFile = Path("keys.yaml"), output: OutputOption = Output.TEXT) -> None:
    """See LIST_HELP."""
    try:
        known = listed_keys(keys)
    except KeysInvalid as problem:
        fail(str(problem), code=exit_codes.USAGE)
    if output is Output.JSON:
        listed = [
            {"name": key.name, "namespaces": list(key.namespaces), "secret": key.secret, "admin": key.admin}
            for key in known
        ]
        emit_json({"file": str(keys), "keys": listed})
        return
    for key in known:
        secret = f"  Secret {key.secret}" if key.secret else ""
        admin = "  admin" if key.admin else ""
        console.print(f"{key.name}  {', '.join(key.namespaces) or '-'}{secret}{admin}", markup=False)


DELETE_HELP = """Take a key out of a keys file: whoever holds it is refused from then on.

A running `superinfer serve` reads the file again by itself.

\b
Examples:
  superinfer keys delete checkout --keys keys.yaml

\b
Exit codes:
  0  deleted
  2  the file cannot be used, or has no key of that name"""


@app.command("delete", help=DELETE_HELP, short_help="Take a key out of a keys file.")
def delete(
    name: Annotated[str, typer.Argument(help="Name of the key, as `superinfer keys list` shows it.")],
    keys: KeysFile = Path("keys.yaml"),
    output: OutputOption = Output.TEXT,
) -> None:
    """See DELETE_HELP."""
    try:
        remove_key(keys, name)
    except KeysInvalid as problem:
        fail(str(problem), code=exit_codes.USAGE)
    if output is Output.JSON:
        emit_json({"name": name, "deleted": True, "file": str(keys)})
    else:
        console.print(f"{name} is deleted from {keys}.", markup=False)
