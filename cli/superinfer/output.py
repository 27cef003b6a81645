"""How commands speak: text for people, JSON for programs, errors on stderr with what to do next."""

import json
import sys
from enum import StrEnum
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console

from superinfer.exit_codes import FAILED

PIPE_WIDTH: Final = 120
"""Width where output goes to a file or a pipe, which have none of their own."""


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, soft_wrap=True, highlight=False, width=width)


console = _console(stderr=False)
errors = _console(stderr=True)


class Output(StrEnum):
    """`--output` of every command that answers with data."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="text for people, json for programs.", show_default=True)
]


def emit_json(value: Any) -> None:
    """Print one JSON document on stdout, unwrapped and uncoloured."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def fail(message: str, *, fix: str | None = None, code: int = FAILED) -> NoReturn:
    """End the command with an error a person can act on."""
    errors.print(f"superinfer: {message}", style="bold red", markup=False)
    if fix:
        errors.print(f"  {fix}", markup=False)
    raise typer.Exit(code)
