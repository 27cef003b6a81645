"""The stub as a process: one JSON line when ready, SIGTERM finishes what runs and exits 0."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence

import uvloop

from superinfer_executor.stub.service import StubEngine, start_server
from superinfer_executor.stub.settings import StubSettings, parse_settings


async def _serve(settings: StubSettings) -> None:
    engine = StubEngine(settings)
    server = await start_server(engine, settings)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ready = {
        "event": "ready",
        "engine": "stub",
        "model": settings.served_model_name,
        "socket": str(settings.socket),
        "generation": engine.generation,
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await engine.drain()
    await server.stop(grace=0.1)


def main(argv: Sequence[str]) -> int:
    """Run a stub until SIGTERM."""
    uvloop.run(_serve(parse_settings(argv)))
    return 0
