"""Exit codes of every `superinfer` command, so that scripts can tell "no" from "broken"."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""The command ran and the answer is no, or something broke while it ran."""
USAGE: Final = 2
"""The command could not start: a wrong option, a missing file, a port in use."""
INTERRUPTED: Final = 130
"""Ctrl-C before the command could begin."""
