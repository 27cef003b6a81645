"""`crds`: writes the CustomResourceDefinitions, or says which are stale."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from superinfer_operator.crdgen.documents import chart_text, stale, text, write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes; shared by `superinfer_operator crds` and `superinfer_operator.crdgen`."""
    parser.add_argument("--out", type=Path, default=Path("crds"), help="folder of the files (default: crds)")
    parser.add_argument("--chart", type=Path, help="folder for the same files as templates of the chart")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")


def run(arguments: argparse.Namespace) -> int:
    """Does it, and returns the exit status."""
    folders = [(arguments.out, text)]
    if arguments.chart is not None:
        folders.append((arguments.chart, chart_text))
    status = 0
    for folder, text_of in folders:
        if not arguments.check:
            for path in write(folder, text_of):
                sys.stdout.write(f"{path}\n")
        elif found := stale(folder, text_of):
            sys.stderr.write(f"stale in {folder}: {', '.join(found)}; run 'make gen' and commit\n")
            status = 1
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """The command by itself."""
    parser = argparse.ArgumentParser(prog="superinfer_operator.crdgen", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))
