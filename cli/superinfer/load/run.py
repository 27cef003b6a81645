"""One open-loop run: every request leaves when it is due, whatever became of the ones before it.

Promise: one record per job, in order of arrival; `Progress` is told about every request that ends. How late
requests left is in the records (`sent_ms - due_ms`): a load generator that cannot keep up shows.
Concurrency: one asyncio loop, one task per request in flight.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from superinfer.load.bodies import COMPLETIONS, Body, promise_headers
from superinfer.load.client import LoadClient, now_ms
from superinfer.load.record import RequestRecord, fill
from superinfer.simulation.workload import Job

Progress = Callable[[RequestRecord], None]
Headers = Callable[[Job], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Load:
    """How jobs become requests."""

    body: Body
    headers: Headers = promise_headers
    path: str = COMPLETIONS
    keep_events: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Records, and how long from the first request's due time to the last answer."""

    records: list[RequestRecord]
    duration_s: float


def _nothing(_record: RequestRecord) -> None:
    """Nobody watches."""


async def open_loop(
    client: LoadClient, jobs: Sequence[Job], load: Load, progress: Progress = _nothing
) -> Run:
    """Send every job at its time and wait for the last answer."""
    jobs = sorted(jobs, key=lambda job: (job.arrived_ms, job.request_id))
    encoded = [client.encode(load.path, load.body(job), load.headers(job)) for job in jobs]
    records = [RequestRecord.of(job) for job in jobs]
    sending: list[asyncio.Task[None]] = []
    with _no_collector_pauses():
        start = now_ms() - (jobs[0].arrived_ms if jobs else 0.0)
        for record, request in zip(records, encoded, strict=True):
            wait_ms = start + record.due_ms - now_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000.0)
            send = _send(client, request, record, start, load, progress)
            sending.append(asyncio.create_task(send))
        await asyncio.gather(*sending)
        end = now_ms()
    return Run(records, max(1e-3, (end - start - (jobs[0].arrived_ms if jobs else 0.0)) / 1000.0))


async def _send(
    client: LoadClient, request: bytes, record: RequestRecord, start: float, load: Load, progress: Progress
) -> None:
    exchanged = await client.exchange(request)
    record.sent_ms = exchanged.sent_at_ms - start
    fill(record, exchanged.response, exchanged.sent_at_ms, keep_events=load.keep_events)
    progress(record)


@contextmanager
def _no_collector_pauses() -> Iterator[None]:
    """The cyclic collector would stamp tokens late; a run makes few cycles and is short."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
