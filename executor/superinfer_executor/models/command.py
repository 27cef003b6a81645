"""`python -m superinfer_executor models`: prepare a model directory and say where it is."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from superinfer_executor.models.directory import MissingModelSource, ModelDirectoryOccupied
from superinfer_executor.models.smollm2 import prepare_smollm2
from superinfer_executor.models.tiny import prepare_tiny

PREPARE: dict[str, Callable[[Path], Path]] = {"smollm2": prepare_smollm2, "tiny": prepare_tiny}


def default_model_dir(name: str) -> Path:
    """Where a prepared model is kept when nobody says otherwise (XDG cache)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "superinfer" / "models" / name


def _end(number: int, _frame: object) -> None:
    """End by unwinding, so that what is half made is removed."""
    sys.exit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare a model directory.

    Returns:
        0 when the directory is ready (its path on stdout, one JSON line), 1 when it cannot be made.
    """
    parser = argparse.ArgumentParser(
        prog="superinfer_executor models",
        description="Prepare a model directory; nothing is done when it is already there.",
        epilog="example: python -m superinfer_executor models smollm2 --out ~/models/smollm2",
    )
    parser.add_argument("model", choices=sorted(PREPARE))
    parser.add_argument("--out", type=Path, help="default: ~/.cache/superinfer/models/MODEL")
    arguments = parser.parse_args(argv)
    before = signal.signal(signal.SIGTERM, _end)
    try:
        directory = PREPARE[arguments.model](arguments.out or default_model_dir(arguments.model))
    except (MissingModelSource, ModelDirectoryOccupied, OSError) as error:
        sys.stderr.write(f"superinfer models: {error}\n")
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.stdout.write(json.dumps({"model": arguments.model, "path": str(directory)}) + "\n")
    return 0
