"""What holds for every command and every option: help with examples, and numbers that are numbers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from superinfer.main import app

Run = Callable[..., Any]


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words it is called by."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
    else:
        for name, one in below.items():
            yield from commands(one, (*path, name))


ALL = list(commands(typer.main.get_command(app)))
NUMBERS = [
    (path, parameter.opts[0])
    for path, command in ALL
    for parameter in command.params
    if getattr(getattr(parameter, "type_descriptor", None), "annotation", None) is float
]


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_has_examples_exit_codes_and_a_line_that_fits(
    superinfer: Run, path: tuple[str, ...], command: Any
) -> None:
    told = superinfer(*path, "--help")
    assert told.exit_code == 0
    assert f"superinfer {' '.join(path)}" in told.stdout.split("Examples:", 1)[1]
    assert "Exit codes:" in told.stdout
    listed = superinfer(*path[:-1], "--help").stdout
    (line,) = (line for line in listed.splitlines() if line.startswith(f"  {path[-1]} "))
    assert not line.endswith("..."), "what it is for does not fit its line"


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize(("path", "option"), NUMBERS, ids=[f"{' '.join(p)} {o}" for p, o in NUMBERS])
def test_a_number_is_a_plain_number(superinfer: Run, path: tuple[str, ...], option: str, value: str) -> None:
    refused = superinfer(*path, option, value)
    assert refused.exit_code == 2
    assert option in refused.output


def test_there_are_options_to_try() -> None:
    assert len(NUMBERS) >= 8


NAMES = [
    ("serve", "--stub", "--contracts"),
    ("serve", "--model"),
    ("contract", "check"),
    ("plan", "-f"),
    ("memory",),
    ("simulate", "--trace"),
    ("keys", "list", "--keys"),
]


@pytest.mark.parametrize("arguments", NAMES, ids=[" ".join(one) for one in NAMES])
def test_a_name_no_file_can_have_is_refused_with_a_word(superinfer: Run, arguments: tuple[str, ...]) -> None:
    refused = superinfer(*arguments, "x" * 300)
    assert refused.exit_code in (1, 2)
    assert refused.output.strip()
    assert isinstance(refused.exception, SystemExit), "a traceback"


EMPTY = [
    *((*one, "") for one in NAMES),
    ("serve", "--stub", "--contracts="),
    ("",),
    ("serve", "--model", "", "--", "--dtype", "float32"),
]


@pytest.mark.parametrize("arguments", EMPTY, ids=[" ".join(one) for one in EMPTY])
def test_an_empty_argument_is_refused_and_never_the_current_directory(
    superinfer: Run, arguments: tuple[str, ...]
) -> None:
    refused = superinfer(*arguments)
    assert refused.exit_code == 2
    assert "is empty; is a variable unset?" in refused.output
