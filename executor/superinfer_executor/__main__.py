"""`python -m superinfer_executor COMMAND`: each part is imported only when it is asked for.

Runs again, as `__mp_main__`, in vLLM's child processes: nothing may happen at import.
"""

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

COMMANDS: Final = {
    "serve": ("superinfer_executor.serving.command", "serve a model: vLLM in process, on a Unix socket"),
    "stub": ("superinfer_executor.stub.command", "the engine stub: no model, for tests and benchmarks"),
    "wait-drained": ("superinfer_executor.drained", "wait for the sidecar's end: a pod's preStop hook"),
    "node-agent": ("superinfer_executor.node_agent.command", "read this node's GPUs, publish NodeTopology"),
    "models": ("superinfer_executor.models.command", "prepare a model directory"),
}


def main(argv: Sequence[str]) -> int:
    """Run a subcommand; 2 for a command line nobody knows."""
    if not argv or argv[0] not in COMMANDS:
        asked_for_help = bool(argv) and argv[0] in {"-h", "--help"}
        lines = ["usage: python -m superinfer_executor COMMAND [OPTIONS]", ""]
        lines += [f"  {name:13}{what}" for name, (_, what) in COMMANDS.items()]
        (sys.stdout if asked_for_help else sys.stderr).write("\n".join(lines) + "\n")
        return 0 if asked_for_help else 2
    module = importlib.import_module(COMMANDS[argv[0]][0])
    result: int = module.main(argv[1:])
    return result


def _end(_number: int, _frame: object) -> None:
    """Until a command has its own handler: nothing runs yet that could be finished."""
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    # The first process of a container has no default action for SIGTERM: a loading one could not be ended.
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main(sys.argv[1:]))
