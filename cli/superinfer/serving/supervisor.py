"""Keeps a set of processes running: starts them, restarts crashed ones, stops them in order.

Promises: no process outlives the supervisor (the kernel enforces it); a crash of one never touches the
others; stopping takes the ingress first so that open streams finish while engines still run.
Concurrency: one asyncio loop owns everything; each process has one task.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from superinfer.serving.backoff import Backoff
from superinfer.serving.launch import cannot_outlive_us
from superinfer.serving.process import EventKind, ProcessEvent, ProcessSpec, Role

Observer = Callable[[ProcessEvent], None]

MAX_EVENT_BYTES = 1 << 20
DRAIN_S = 1.0
"""What a process said last is read for this long after its end."""


class Child:
    """One supervised process and the task that keeps it alive."""

    def __init__(self, spec: ProcessSpec, observe: Observer, backoff: Backoff) -> None:
        self.spec = spec
        self.ready = asyncio.Event()
        self.gave_up = False
        self.restarts = 0
        self._observe = observe
        self._backoff = backoff
        self._stopping = False
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def start(self) -> None:
        """Begin to keep the process running."""
        self._task = asyncio.create_task(self._keep_running(), name=f"keep {self.spec.name}")

    async def wait(self) -> None:
        """Return when the process is given up or stopped."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def stop(self, *, at_once: bool = False) -> None:
        """Ask the process to end, and make it end after its grace period."""
        self._stopping = True
        if self._task is None:
            return
        process = self._process
        if process is None or process.returncode is not None:
            self._task.cancel()  # waiting to restart
        else:
            self._say(EventKind.STOPPING)
            if not at_once:
                self._signal(signal.SIGTERM)
                await asyncio.wait({self._task}, timeout=self.spec.grace_s)
            if not self._task.done():
                self._kill_group()
        await asyncio.wait({self._task})
        self._say(EventKind.STOPPED)

    def kill(self) -> None:
        """End the process now, with everything it started."""
        self._stopping = True
        self._kill_group()

    async def _keep_running(self) -> None:
        crashes = 0
        ever_ready = False
        while not self._stopping:
            started = time.monotonic()
            returncode = await self._run_once()
            ever_ready = ever_ready or self.ready.is_set()
            self.ready.clear()
            if self._stopping:
                return
            crashes = self._backoff.crashes_in_a_row(crashes, time.monotonic() - started)
            if self._backoff.gives_up(crashes, returncode=returncode, ever_ready=ever_ready):
                self.gave_up = True
                self._say(EventKind.GAVE_UP, _ending(returncode))
                return
            delay_s = self._backoff.delay_s(crashes)
            self._say(EventKind.CRASHED, f"{_ending(returncode)}; starting again in {delay_s:g} s")
            self.restarts += 1
            await asyncio.sleep(delay_s)

    async def _run_once(self) -> int:
        self._say(EventKind.STARTING)
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        with self.spec.log.open("ab") as log:
            reader, write_end, transport = await _event_pipe()
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *cannot_outlive_us(self.spec.command),
                    env=dict(self.spec.env),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is ours to hand on, in order
                )
            finally:
                os.close(write_end)
            reading = asyncio.create_task(self._read_events(reader, log.fileno()))
            try:
                return await process.wait()
            finally:
                self._kill_group()  # what the process itself started ends with it
                await asyncio.wait({reading}, timeout=DRAIN_S)
                reading.cancel()
                transport.close()

    async def _read_events(self, reader: asyncio.StreamReader, log_fd: int) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # longer than any event
                continue
            if not line:
                return
            fields = _event_fields(line)
            if fields is None:
                os.write(log_fd, line)
            elif fields.get("event") == "ready":
                self.ready.set()
                self._say(EventKind.READY, fields=fields)
            else:
                self._say(EventKind.PROGRESS, _words(fields), fields)

    def _say(self, kind: EventKind, detail: str = "", fields: dict[str, Any] | None = None) -> None:
        self._observe(ProcessEvent(self.spec.name, kind, detail, fields or {}))

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _kill_group(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


class Supervisor:
    """All processes of one `superinfer serve`."""

    def __init__(
        self, specs: Sequence[ProcessSpec], observe: Observer, *, backoff: Backoff | None = None
    ) -> None:
        self.children = tuple(Child(spec, observe, backoff or Backoff()) for spec in specs)

    def start(self) -> None:
        """Start every process; they become ready in their own time."""
        for child in self.children:
            child.start()

    async def wait_ready(self) -> bool:
        """True once every process said it is ready; False as soon as one was given up."""
        everyone = asyncio.create_task(self._all_ready())
        failure = asyncio.create_task(self._one_lost())
        await asyncio.wait({everyone, failure}, return_when=asyncio.FIRST_COMPLETED)
        lost = failure.done()
        for task in (everyone, failure):
            task.cancel()
        await asyncio.gather(everyone, failure, return_exceptions=True)
        return not lost

    async def _all_ready(self) -> None:
        for child in self.children:
            await child.ready.wait()

    async def _one_lost(self) -> None:
        await self.wait_given_up()

    async def wait_given_up(self) -> Child:
        """Return the first process that will not be started again."""
        tasks = {asyncio.create_task(child.wait()): child for child in self.children}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[done.pop()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Ingress first, so that open streams finish while engines still run; engines last."""
        for role in Role:
            await asyncio.gather(*(child.stop() for child in self.children if child.spec.role is role))

    def kill(self) -> None:
        """No grace: end everything now."""
        for child in self.children:
            child.kill()


def log_tail(log: Path, lines: int = 15) -> str:
    """The last lines of a process' log, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""


async def _event_pipe() -> tuple[asyncio.StreamReader, int, asyncio.ReadTransport]:
    """A pipe of our own: asyncio's waits for everyone who inherited it, so a crash would go unnoticed."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader(limit=MAX_EVENT_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", 0)
    )
    return reader, write_end, transport


def _event_fields(line: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and isinstance(fields.get("event"), str) else None


def _words(fields: dict[str, Any]) -> str:
    said = fields.get("message") or fields.get("step")
    return f"{fields['event']}: {said}" if said else str(fields["event"])


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"exited with {returncode}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-returncode).name}"
    return f"killed by signal {-returncode}"
