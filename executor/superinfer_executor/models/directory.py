"""A model directory that is either whole or absent, however often and by whomever it is prepared.

A directory is built beside its place and renamed into it, under a file lock, so several processes may
prepare the same one at once: one builds, the others wait and find it done. A marker file names the recipe
that made it; a directory without one was not made by us and is never touched.
"""

import fcntl
import glob
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

MARKER_NAME = "superinfer-model.json"
_PARTIAL = ".partial"
_OUTDATED = ".outdated"


class ModelDirectoryOccupied(RuntimeError):
    """The place asked for holds files that did not come from us."""


class MissingModelSource(RuntimeError):
    """What the model is made from is not installed."""


def progress(text: str) -> None:
    """Tell whoever waits what is being done; stdout stays free for machine-readable output."""
    print(f"superinfer models: {text}", file=sys.stderr, flush=True)  # noqa: T201 - this is the progress line


def prepare_directory(
    out_dir: Path, recipe: Mapping[str, str | int], build: Callable[[Path], None]
) -> tuple[Path, bool]:
    """Make `out_dir` hold what `build` writes for `recipe`.

    Returns:
        The directory, and whether it was built now rather than found.
    """
    out_dir = out_dir.expanduser().absolute()
    if _is_current(out_dir, recipe):
        return out_dir, False
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with _locked(out_dir.parent / f".{out_dir.name}.lock"):
        if _is_current(out_dir, recipe):  # someone else built it while we waited
            return out_dir, False
        _refuse_foreign(out_dir)
        _remove_half_made(out_dir)
        started_s = time.monotonic()
        scratch = out_dir.parent / f".{out_dir.name}.{os.getpid()}{_PARTIAL}"
        scratch.mkdir()
        try:
            build(scratch)
            (scratch / MARKER_NAME).write_text(json.dumps(dict(recipe), indent=1) + "\n", encoding="utf-8")
            _open_to_readers(scratch)
            _swap_in(scratch, out_dir)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        progress(f"{out_dir} ready after {time.monotonic() - started_s:.1f} s")
    return out_dir, True


def _is_current(out_dir: Path, recipe: Mapping[str, str | int]) -> bool:
    try:
        found = json.loads((out_dir / MARKER_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == dict(recipe))


def _refuse_foreign(out_dir: Path) -> None:
    if not out_dir.exists():
        return
    if not out_dir.is_dir():
        raise ModelDirectoryOccupied(f"{out_dir} is not a directory; choose another --out")
    if any(out_dir.iterdir()) and not (out_dir / MARKER_NAME).exists():
        raise ModelDirectoryOccupied(
            f"{out_dir} holds files not prepared by superinfer; choose another --out"
        )


def _remove_half_made(out_dir: Path) -> None:
    """What processes left that were killed while they built; whoever holds the lock is the only builder."""
    for ending in (_PARTIAL, _OUTDATED):
        for left in out_dir.parent.glob(f".{glob.escape(out_dir.name)}.*{ending}"):
            shutil.rmtree(left, ignore_errors=True)


def _swap_in(scratch: Path, out_dir: Path) -> None:
    if not out_dir.exists():
        scratch.rename(out_dir)
        return
    outdated = out_dir.parent / f".{out_dir.name}.{os.getpid()}{_OUTDATED}"
    out_dir.rename(outdated)
    scratch.rename(out_dir)
    shutil.rmtree(outdated, ignore_errors=True)


def _open_to_readers(directory: Path) -> None:
    # The engine often runs as another user than whoever prepared the model (containers, a shared cache).
    directory.chmod(0o755)
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


@contextmanager
def _locked(lock_path: Path) -> Iterator[None]:
    with lock_path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that prepares it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
