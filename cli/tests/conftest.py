"""Shared by the tests of the command."""

from collections.abc import Callable

import pytest
from click.testing import Result
from typer.testing import CliRunner

from superinfer.main import app


@pytest.fixture
def superinfer() -> Callable[..., Result]:
    """Run the command with arguments and, where given, text on stdin."""
    runner = CliRunner()

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return runner.invoke(app, list(arguments), input=stdin)

    return run
