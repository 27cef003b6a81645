"""`crds`: writes the CustomResourceDefinitions, or says which are stale."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from superinfer_operator.crdgen.documents import stale, write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes; shared by `superinfer_operator crds` and `superinfer_operator.crdgen`."""
    parser.add_argument("--out", type=Path, default=Path("crds"), help="folder of the files (default: crds)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")


def run(arguments: argparse.Namespace) -> int:
    """Does it, and returns the exit status."""
    if not arguments.check:
        for path in write(arguments.out):
            sys.stdout.write(f"{path}\n")
        return 0
    if found := stale(arguments.out):
        sys.stderr.write(f"stale in {arguments.out}: {', '.join(found)}; run 'make gen' and commit\n")
        return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command by itself."""
    parser = argparse.ArgumentParser(prog="superinfer_operator.crdgen", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))
