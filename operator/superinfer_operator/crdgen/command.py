"""`crds`: writes the CustomResourceDefinitions, or says which are stale."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from superinfer_operator.crdgen.documents import chart_text, stale, text, write
from superinfer_operator.crdgen.reference import reference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes; shared by `superinfer_operator crds` and `superinfer_operator.crdgen`."""
    parser.add_argument("--out", type=Path, default=Path("crds"), help="folder of the files (default: crds)")
    parser.add_argument("--chart", type=Path, help="folder for the same files as templates of the chart")
    parser.add_argument("--reference", type=Path, help="file for the reference of all fields, in Markdown")
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
    if arguments.reference is not None:
        status = max(status, _reference(arguments.reference, check=arguments.check))
    return status


def _reference(path: Path, *, check: bool) -> int:
    wanted = reference()
    if not check:
        path.write_text(wanted, encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    elif not path.exists() or path.read_text(encoding="utf-8") != wanted:
        sys.stderr.write(f"stale: {path}; run 'make gen' and commit\n")
        return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command by itself."""
    parser = argparse.ArgumentParser(prog="superinfer_operator.crdgen", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))
