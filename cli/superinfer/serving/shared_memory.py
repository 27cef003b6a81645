"""Where one machine's checkpoints are: one directory of shared memory per `serve`, one below it per executor.

Nothing of it may outlive its `serve`: the directory is removed at the end, and what a killed one left is
removed by the next (nobody holds the locks of its files any more).
"""

import shutil
from pathlib import Path
from typing import Final

from superinfer_proto.slab import has_writer

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - not a place for files, memory
_PREFIX: Final = "superinfer-"
_MIB: Final = 1 << 20


def checkpoint_root(run_dir: Path) -> Path:
    """The directory of one `serve`."""
    return SHARED_MEMORY / f"{_PREFIX}{run_dir.name.removeprefix(_PREFIX)}"


def free_mib() -> int:
    """Shared memory that is free; 0 where there is none at all."""
    try:
        return shutil.disk_usage(SHARED_MEMORY).free // _MIB
    except OSError:
        return 0


def remove(run_dir: Path) -> None:
    """Remove the directory of one `serve`."""
    shutil.rmtree(checkpoint_root(run_dir), ignore_errors=True)


def remove_left_behind() -> None:
    """Remove directories whose processes are all gone."""
    for root in SHARED_MEMORY.glob(f"{_PREFIX}*"):
        slabs = list(root.glob("*/*.slab"))
        if slabs and not any(map(has_writer, slabs)):
            shutil.rmtree(root, ignore_errors=True)
