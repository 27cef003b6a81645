"""Starts real engines quickly: vLLM is imported once here, and every engine is a fork of this process.

Importing vLLM is most of what starting a small engine takes; two hundred deaths would be an hour of imports.
What is forked runs the executor's own `serve` command from its first line, with its own EngineCore process
(forked as well instead of spawned), and can be killed like any other. Engines die with this process, and this
process with the one that reads its stdout.

Speaks JSON lines: {"start": name, "argv": [...], "env": {...}, "log": path} in; {"event": "ready"},
{"event": "started", "name", "pid"}, {"event": "ended", "name", "pid", "code"} out. Single-threaded, since it
forks.
"""

import contextlib
import json
import multiprocessing
import os
import select
import signal
import sys
from typing import IO, Any, Final, NoReturn

from superinfer_executor.engine.core_process import die_with_parent

_POLL_S: Final = 0.02


def main() -> int:
    """Until stdin closes."""
    die_with_parent(os.getppid())
    events = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    _import_engine()
    _tell(events, event="ready")
    running: dict[int, str] = {}
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], _POLL_S)
        if readable:
            data = os.read(0, 1 << 16)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                _start(json.loads(line), running, events)
        _reap(running, events)
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return 0


def _import_engine() -> None:
    """Everything an engine imports, and nothing that starts a thread."""
    import vllm.entrypoints.launchers.cli_args
    import vllm.v1.engine.core
    import vllm.v1.engine.utils
    import vllm.v1.worker.cpu_model_runner
    import vllm.v1.worker.cpu_worker

    import superinfer_executor.checkpoint
    import superinfer_executor.engine.llm
    import superinfer_executor.plugin.scheduler
    import superinfer_executor.serving.server
    import superinfer_executor.serving.service
    import superinfer_executor.serving.warm_up  # noqa: F401

    vllm.v1.engine.utils.get_mp_context = lambda: multiprocessing.get_context("fork")


def _start(order: dict[str, Any], running: dict[int, str], events: IO[str]) -> None:
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        _become_engine(order, parent)
    running[pid] = order["start"]
    _tell(events, event="started", name=order["start"], pid=pid)


def _become_engine(order: dict[str, Any], parent: int) -> NoReturn:
    code = 1
    try:
        os.setsid()
        die_with_parent(parent)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        said = os.open(order["log"] + ".events", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((null, 0), (said, 1), (log, 2)):
            os.dup2(here, there)
        os.environ.update(order["env"])
        sys.argv = ["superinfer_executor", *order["argv"]]
        from superinfer_executor.serving.command import main as serve

        code = serve(order["argv"])
    finally:
        os._exit(code)


def _reap(running: dict[int, str], events: IO[str]) -> None:
    while running:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        name = running.pop(pid, None)
        if name is not None:
            _tell(events, event="ended", name=name, pid=pid, code=os.waitstatus_to_exitcode(status))


def _tell(events: IO[str], **event: Any) -> None:
    try:
        events.write(json.dumps(event) + "\n")
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
