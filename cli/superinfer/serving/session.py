"""One running `superinfer serve`: start everything, wait for it to be usable, keep it, stop it cleanly.

Used by the serve command and by the demo. Concurrency: one asyncio loop; signals set an event.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from superinfer.serving import shared_memory
from superinfer.serving.console import Progress
from superinfer.serving.interrupts import StopRequest, stop_on_signals, unless_stopped
from superinfer.serving.options import ServeOptions
from superinfer.serving.plan import ServePlan, plan
from superinfer.serving.process import Role
from superinfer.serving.startup import StartUp
from superinfer.serving.supervisor import Child, Supervisor, log_tail

POLL_S = 0.2


class StartFailed(Exception):
    """A process does not start; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Session:
    """A machine that serves."""

    url: str
    model: str
    run_dir: Path
    supervisor: Supervisor
    plan: ServePlan
    startup: StartUp

    def engine_pid(self) -> int | None:
        """Process of the first executor, while it runs."""
        executors = (c for c in self.supervisor.children if c.spec.role is Role.EXECUTOR)
        return next((child.pid for child in executors), None)


@contextlib.asynccontextmanager
async def serving(options: ServeOptions, progress: Progress, stop: StopRequest) -> AsyncIterator[Session]:
    """Everything up and answering inside the block; nothing left running after it.

    Raises:
        StartFailed: a process was given up before all were ready.
        Interrupted: `stop` was set while starting.
    """
    shared_memory.remove_left_behind()
    run_dir = Path(tempfile.mkdtemp(prefix="superinfer-"))
    kept: list[Path] = []
    try:
        async with _running(options, progress, stop, run_dir, kept) as session:
            yield session
    finally:
        shared_memory.remove(run_dir)
        clear(run_dir, kept)


@contextlib.asynccontextmanager
async def _running(
    options: ServeOptions, progress: Progress, stop: StopRequest, run_dir: Path, kept: list[Path]
) -> AsyncIterator[Session]:
    """The session in `run_dir`; `kept` gets the logs that a message names."""
    contracts = options.contracts or run_dir / "contracts"
    contracts.mkdir(exist_ok=True)
    the_plan = plan(options, run_dir=run_dir, environment=os.environ, contracts=contracts.resolve())
    the_plan.write()
    startup = StartUp(progress)
    supervisor = Supervisor(the_plan.processes, startup.event)
    supervisor.start()
    try:
        await unless_stopped(_until_usable(options, supervisor, startup), stop)
        progress.done()
        yield Session(base_url(options), options.served_name, run_dir, supervisor, the_plan, startup)
    except StartFailed:
        kept += [child.spec.log for child in supervisor.children if child.gave_up]
        raise
    finally:
        await _stop(supervisor, progress)


def clear(run_dir: Path, kept: Sequence[Path]) -> None:
    """Remove a run's directory, but for the logs that somebody was told to read."""
    named = {log for log in kept if log.is_file() and log.is_relative_to(run_dir)}
    if not named:
        shutil.rmtree(run_dir, ignore_errors=True)
        return
    for root, directories, files in os.walk(run_dir, topdown=False):
        with contextlib.suppress(OSError):  # a directory that still holds a log stays
            for file in files:
                if Path(root, file) not in named:
                    Path(root, file).unlink()
            for directory in directories:
                with contextlib.suppress(OSError):
                    Path(root, directory).rmdir()


def base_url(options: ServeOptions) -> str:
    """Where clients go."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(options.host, options.host)  # noqa: S104
    return f"http://{host}:{options.port}"


async def _until_usable(options: ServeOptions, supervisor: Supervisor, startup: StartUp) -> None:
    started = asyncio.create_task(supervisor.wait_ready())
    began = time.monotonic()
    try:
        while not started.done():
            await asyncio.wait({started}, timeout=POLL_S)
            waiting = [child.spec.name for child in supervisor.children if not child.ready.is_set()]
            if waiting and time.monotonic() - began > 1:
                startup.waiting_for(waiting)
    finally:
        started.cancel()
    if not started.result():
        raise StartFailed(start_failure(supervisor))
    await _until_ready_over_http(base_url(options), supervisor)


async def _until_ready_over_http(url: str, supervisor: Supervisor) -> None:
    async with httpx.AsyncClient(timeout=5) as client:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(f"{url}/readyz")).status_code == httpx.codes.OK:
                    return
            if any(child.gave_up for child in supervisor.children):
                raise StartFailed(start_failure(supervisor))
            await asyncio.sleep(POLL_S)


async def _stop(supervisor: Supervisor, progress: Progress) -> None:
    """A second signal while stopping ends the patience."""
    hurry = StopRequest()
    with stop_on_signals(hurry):
        stopping = asyncio.create_task(supervisor.stop())
        hurrying = asyncio.create_task(hurry.wait())
        await asyncio.wait({stopping, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not stopping.done():
            supervisor.kill()
        await stopping
    progress.done()


def start_failure(supervisor: Supervisor) -> str:
    """Which process does not start, and the end of what it said."""
    lost: list[Child] = [child for child in supervisor.children if child.gave_up]
    parts = [
        f"{child.spec.name} does not start. The end of its log ({child.spec.log}):\n\n"
        f"{log_tail(child.spec.log)}"
        for child in lost
    ]
    return "\n\n".join(parts)
