"""vLLM's EngineCore process, made to die with the executor and to leave terminal signals to it.

A killed API process otherwise leaves EngineCore generating and writing KV. `install` runs before vLLM
starts the process; `run_engine_core` runs inside it, spawned or forked. The other way round, `watch` tells of
EngineCore's death as soon as the kernel shows it: vLLM's monitor waits until all its memory is freed.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
from collections.abc import Callable
from typing import Any, Final

from superinfer_proto.processes import is_ending

PARENT_PID_ENV: Final = "SUPERINFER_EXECUTOR_PID"
_PR_SET_PDEATHSIG: Final = 1
LOOK_S: Final = 0.01
"""How often a watched process is looked at; a closed pidfd tells too, but only of what is wholly gone."""
log = logging.getLogger(__name__)

_forked_original: list[Callable[..., None]] = []


def install() -> None:
    """Make vLLM start EngineCore through `run_engine_core` below."""
    from vllm.v1.engine.core import EngineCoreProc

    os.environ[PARENT_PID_ENV] = str(os.getpid())
    if not _forked_original:
        _forked_original.append(EngineCoreProc.run_engine_core)
        EngineCoreProc.run_engine_core = staticmethod(run_engine_core)


def run_engine_core(*args: Any, **kwargs: Any) -> None:
    """Target of the EngineCore process: tie it to its parent, then go on as vLLM would."""
    from vllm.v1.engine.core import EngineCoreProc

    # Its own session: a Ctrl-C or a kill of the executor's group must not end it before the drain does.
    os.setsid()
    die_with_parent(int(os.environ.get(PARENT_PID_ENV, "0")))
    original = _forked_original[0] if _forked_original else EngineCoreProc.run_engine_core
    original(*args, **kwargs)


def die_with_parent(parent_pid: int) -> None:
    """SIGKILL for this process the moment its parent is gone, also when it already is (Linux only)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_PDEATHSIG): {os.strerror(error)}")
    if parent_pid and os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def watch(llm: Any, on_end: Callable[[int], None]) -> Callable[[], None]:
    """Call `on_end` with the process id the moment an EngineCore has ended; answers how to stop watching."""
    manager = getattr(llm.engine_core.resources, "engine_manager", None)
    return watch_processes([process.pid for process in getattr(manager, "processes", ())], on_end)


def watch_processes(pids: list[int], on_end: Callable[[int], None]) -> Callable[[], None]:
    """Likewise for any processes, once for each; event loop only."""
    loop = asyncio.get_running_loop()
    watched: dict[int, int] = {}
    timer: list[asyncio.TimerHandle] = []

    def forget(pid: int) -> None:
        descriptor = watched.pop(pid)
        loop.remove_reader(descriptor)
        with contextlib.suppress(OSError):
            os.close(descriptor)

    def ended(pid: int) -> None:
        if pid in watched:
            forget(pid)
            on_end(pid)

    def look() -> None:
        for pid in [pid for pid in watched if is_ending(pid)]:
            ended(pid)
        timer[:] = [loop.call_later(LOOK_S, look)] if watched else []

    def stop() -> None:
        for pid in list(watched):
            forget(pid)
        for handle in timer:
            handle.cancel()

    for pid in pids:
        try:
            watched[pid] = os.pidfd_open(pid)
            loop.add_reader(watched[pid], ended, pid)
        except ProcessLookupError:
            loop.call_soon(on_end, pid)
        except OSError as error:  # a kernel or a sandbox without it: vLLM's own monitor has to do
            log.info("cannot watch process %d: %s", pid, error)
    look()
    return stop
