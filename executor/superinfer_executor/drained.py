"""`python -m superinfer_executor wait-drained`: what a pod's preStop hook runs instead of a shell.

The kubelet ends the containers of a pod together. The engine has to outlive its sidecar's handing over, so
its end waits here until the sidecar has written the file that says nothing runs any more.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_STEP_S: Final = 0.1


def main(argv: Sequence[str]) -> int:
    """Wait for the file: 0 once it is there, 1 when time is up."""
    parser = argparse.ArgumentParser(
        prog="superinfer_executor wait-drained", description="Wait until the sidecar has drained."
    )
    parser.add_argument("--file", type=Path, required=True, help="what the sidecar's --drained-file names")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="end waiting after so long")
    found = parser.parse_args(argv)
    until = time.monotonic() + found.timeout_s
    while not found.file.exists():
        if time.monotonic() >= until:
            return 1
        time.sleep(_STEP_S)
    return 0
